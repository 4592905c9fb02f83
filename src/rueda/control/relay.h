// What the leader of a host passes on to the coordinator for the ranks below it: equal requests of its ranks
// become one, and so do positions in plans, shutdowns and what ranks say about themselves. A request can run
// only when all members have made it, so a leader keeps it until all of its ranks have, and that delays
// nothing; but only for a moment, because the coordinator must know who waits for whom. Where ranks ask for
// different things under one name, each of the requests is passed on with the ranks that made it.
//
// What each rank has said leaves in the order in which it said it. So the coordinator sees nothing that it
// could not have seen without leaders, if messages had taken other times. Pure: events in (time included),
// messages out.
//
// Example: ranks 4 and 5 are below. Rank 4 asks for a and b, rank 5 for a: {4, 5: a} leaves, and b waits.
// Rank 5 asks for c and b: c leaves first, as {5: c}, then {4, 5: b}.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "rueda/base/clock.h"
#include "rueda/base/status.h"
#include "rueda/control/messages.h"
#include "rueda/control/rank_set.h"
#include "rueda/control/set_members.h"
#include "rueda/control/statement.h"

namespace rueda::control {

class Relay {
 public:
  struct Options {
    RankSet below;    // for whom this rank speaks: itself, and all ranks below it
    SetMembers sets;  // the process sets of the world, without the world
    // So long the first of some equal messages waits for the others. Stalls and verdicts count seconds.
    Nanos patience = 20 * kMillisecond;
  };
  explicit Relay(Options options);

  // A child, or this rank itself, says something. Fails if the statement is malformed.
  Status take(Rank child, Statement statement, Nanos now);
  // These answers are on their way to the ranks below.
  void saw(std::span<const Response> responses);
  // What is to be sent now, in this order.
  std::vector<Statement> due(Nanos now);
  // When due() may have something without another event.
  [[nodiscard]] Nanos next_event() const;

 private:
  // The requests of one tensor, or of all tensors of a group, which stay together; or another message.
  using Content = std::variant<std::vector<Request>, Bytes>;
  struct Topic {              // what several ranks say about the same thing
    RankSet said;             // by these ranks; some of it may have left
    std::vector<Rank> heads;  // children in whose queues it waits
    bool is_request = false;
  };
  using Topics = std::unordered_map<std::string, Topic>;
  struct Item {
    Topics::value_type* topic = nullptr;
    RankSet from;
    MessageType type = MessageType::kRequests;
    Content content;
    Nanos since = 0;
  };
  struct Message {
    RankSet from;
    MessageType type = MessageType::kRequests;
    Content content;
  };

  Status take_requests(Rank child, const Statement& statement, Nanos now);
  void take_unit(Rank child, const RankSet& from, std::vector<Request> unit, Nanos now);
  void collect(Rank child, const std::string& topic, const RankSet& expected, Item item);
  // After everything that this child has said before.
  void pass_at_once(Rank child, Message message);
  void collect_facts(Statement statement, Nanos now);
  // What stands first in queues about this topic leaves.
  void send_heads(Topics::value_type& topic);
  void send_all();
  void drop_requests();
  void answered(int32_t process_set, const std::string& name);
  // Of the set; null: it is not known.
  [[nodiscard]] const RankSet* expected_of(int32_t process_set) const;
  [[nodiscard]] bool are_all(const RankSet& said, const RankSet& expected) const;

  Options options_;
  std::map<int32_t, RankSet> expected_;  // by process set: its members below
  std::map<Rank, std::deque<Item>> queues_;
  Topics topics_;
  RankSet joined_;
  int64_t plans_begun_ = 0;
  std::vector<Message> out_;
  std::vector<Statement> facts_;
  RankSet facts_of_;
  Nanos facts_since_ = 0;
};

}  // namespace rueda::control
