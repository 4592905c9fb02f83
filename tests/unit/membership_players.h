// Who takes part in a simulated job (membership_world.h), and what they send one another.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "rueda/membership/agreement.h"
#include "rueda/membership/member.h"
#include "rueda/membership/proposer.h"

namespace rueda::membership::simulation {

struct Faults {
  int lost_percent = 0, repeated_percent = 0;  // of the messages
  int crash_permille = 0;                      // of the events: a process ends
  int cut_permille = 0;                        // of the events: a host is cut off, or joined again
  int spawn_permille = 0;                      // of the events: a process is started
  bool has_rivals = true;
  bool loses_hosts = false;     // a host that is cut off may be given up although its processes live
  bool is_by_majority = false;  // of the last view; otherwise one register decides
};

struct Process {
  Membership membership;
  int host = 0;
  bool is_alive = true, is_excluded = false, is_given_up = false;
  Commit commit = kNoCommit;
  Commit started = kNoCommit;  // the newest step to which it has contributed in its view
  std::optional<Ready> said{};
  View seen{};                      // the newest view of which it has heard
  std::map<int64_t, Vote> votes{};  // by the number of the view
  std::set<int64_t> accepted{};     // numbers for which it has ever accepted a view
};

struct Boss {
  Proposer proposer;
  int host = 0;
  std::set<Uid> ended{};  // for certain
  bool is_alive = true;
  std::optional<Agreement> attempt{};
  int64_t number = 0, round = 0;  // of the attempt
};

struct ReadyFor {
  size_t boss;
  Ready ready;
};
struct GoneFor {
  size_t boss;
  Uid uid;
  bool is_certain = true;
};
struct Propose {
  size_t boss;
  View view;
};
struct Ask {
  Uid uid;
};
struct AskOther {
  Uid uid, other;
};
struct Held {
  std::variant<size_t, Uid> to;
  View view;
};
struct VoteFor {
  size_t boss;
  int64_t number;
  Agreement::Request request;
};
struct VoteOf {
  size_t boss;
  int64_t number;
  Uid from;
  Vote vote;
};
struct Message {
  int from, to;  // hosts; -1: the register, which everybody reaches unless he is cut off
  std::variant<ReadyFor, GoneFor, Propose, Ask, AskOther, Held, VoteFor, VoteOf> body;
};

// The store of a member.
inline Vote compare_and_set(Process& one, int64_t number, const Agreement::Request& request) {
  Vote& vote = one.votes[number];
  if (vote == request.expected) vote = request.next;
  if (vote.view) one.accepted.insert(number);
  return vote;
}

}  // namespace rueda::membership::simulation
