// What one member of view n has said about view n + 1: a value in its store, which changes by compare and set
// only. So every member is an acceptor of the Paxos protocol (Lamport, "The Part-Time Parliament", 1998)
// without a message of its own. Pure.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <span>

#include "rueda/base/bytes.h"
#include "rueda/base/status.h"
#include "rueda/membership/view.h"

namespace rueda::membership {

// One attempt of one process to have a view decided. The uid makes it different from those of its rivals.
struct Ballot {
  int64_t round = 0;  // 0: none
  Uid by;
  auto operator<=>(const Ballot&) const = default;
};

struct Vote {
  Ballot promised;           // it takes part in no ballot below this one
  Ballot accepted;           // the last in which it has accepted a view
  std::optional<View> view;  // that view
  // This member knows the decision, and belongs to that view or a later one. Whoever asks comes too late.
  bool is_closed = false;
  bool operator==(const Vote&) const = default;
};

// Whether a vote may follow this one in that ballot. Promising again what was promised is allowed.
[[nodiscard]] inline bool allows(const Vote& vote, const Ballot& ballot) {
  return !vote.is_closed && vote.promised <= ballot;
}
Vote promise(Vote vote, const Ballot& ballot);
Vote accept(const Ballot& ballot, const View& view);
Vote closed();

// A value of the store; the vote of a member that has said nothing is no bytes.
Bytes encode(const Vote& vote);
Result<Vote> decode_vote(std::span<const std::byte> bytes);

}  // namespace rueda::membership
