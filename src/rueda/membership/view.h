// The views of an elastic job, and what a member says when it is ready for the next one. Values only.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rueda/base/bytes.h"
#include "rueda/base/status.h"
#include "rueda/base/types.h"

namespace rueda::membership {

// Names one process for the whole job: "b:1#2" is the second process in slot 1 of host b. It is never used
// again.
using Uid = std::string;

// Numbers of the states that a program has committed. -1: it holds none.
using Commit = int64_t;
inline constexpr Commit kNoCommit = -1;

struct Member {
  Uid uid;
  std::string host;
  Commit commit = kNoCommit;  // the newest that it held when the view was formed
  bool is_new = false;        // it did not belong to the view before
  std::string contact{};      // how others reach its process; empty where a launcher decides the views
  bool operator==(const Member&) const = default;
};

// A decided view never changes. The rank of a member is its place in the list.
struct View {
  int64_t number = 0;
  std::vector<Member> members;
  std::vector<Uid> lost;  // those of the view before that do not belong to this one

  [[nodiscard]] Rank size() const { return static_cast<Rank>(members.size()); }
  [[nodiscard]] Rank rank_of(std::string_view uid) const;  // -1: it is no member
  [[nodiscard]] Commit commit() const;                     // the newest that a member holds
  [[nodiscard]] std::vector<Rank> holders() const;         // of that commit; none where there is no commit
  [[nodiscard]] std::vector<Rank> joined() const;
  bool operator==(const View&) const = default;
};

// Where a rank is among those of its host, and its host among the hosts. Hosts are in the order of their
// first ranks.
struct Position {
  Rank local_rank = 0, local_size = 1;
  Rank cross_rank = 0, cross_size = 1;  // among the ranks of all hosts with this local rank
  bool operator==(const Position&) const = default;
};
Position position_of(Rank rank, const View& view);

// A process has left view `after` for good and holds `commit`.
struct Ready {
  Uid uid;
  std::string host;
  int64_t after = 0;  // 0: it has never belonged to one
  Commit commit = kNoCommit;
  std::string digest;     // of the names, shapes and types of its state; empty: it does not say
  Uid cut_from{};         // a member whose host acknowledged nothing to this one; empty: none
  std::string contact{};  // as in Member
  bool operator==(const Ready&) const = default;
};

inline constexpr size_t kMaxUidBytes = 512, kMaxDigestBytes = 256, kMaxContactBytes = 128;

Bytes encode(const View& view);
Bytes encode(const Ready& ready);
Result<View> decode_view(std::span<const std::byte> bytes);
Result<Ready> decode_ready(std::span<const std::byte> bytes);

}  // namespace rueda::membership
