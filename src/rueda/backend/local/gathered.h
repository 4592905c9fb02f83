// Barriers, and allreduces that fit into a post, among many ranks of a host. If every member told every other
// one, as few ranks do (reduction.h), n ranks would write, read and perhaps ring n * n times: 64 ranks on two
// cores woke one another 700 times in a call. Here a call goes up and down a tree (teams.h): each member
// tells its parent when it and those below it have arrived. Member 0 reduces all contributions in rank order,
// so the bits are those of every other algorithm, and the result goes down as it came up. Each member sleeps
// until the one rank rings without which it cannot go on: n wake-ups down, and few on the way up, because a
// parent waits for its last child first.
//
// A leader copies the contributions of its team side by side into its control block, where member 0 finds
// them: it reads memory of another NUMA node once per team and not once per rank.
//
// Nothing is written to a tensor before all members have arrived, so a call can be cancelled until then.
// Engine thread only.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "rueda/backend/local/local_call.h"
#include "rueda/backend/local/teams.h"

namespace rueda::backend {

class Gathered {
 public:
  // The same answer on all members.
  static bool suits(const LocalCall& call);

  void begin(LocalCall& call);  // borrowed until it is over
  LocalTurn advance();
  // The rank without which the call cannot go on, as an index on the host.
  [[nodiscard]] std::optional<size_t> waits_for() const;

 private:
  void find_my_place();
  bool children_have_arrived();
  [[nodiscard]] bool agrees(const LocalPeer& peer) const;
  void gather();
  void reduce();
  void tell(const LocalPeer& peer) const;
  void release();
  [[nodiscard]] std::span<const LocalPeer> children() const {
    return std::span(call_->peers).first(place_.children.size());
  }
  [[nodiscard]] bool has_parent() const { return place_.parent >= 0; }
  [[nodiscard]] const LocalPeer& parent() const { return call_->peers.back(); }

  LocalCall* call_ = nullptr;
  size_t bytes_ = 0;
  size_t missing_ = 0;                           // children; those behind the first `missing_` have arrived
  bool has_told_parent_ = false;                 // so that only the way down is left
  alignas(64) std::byte payload_[kInlineBytes];  // my contribution, then the result

  // Of the last group, kept because the same one mostly comes again.
  std::vector<Rank> members_;
  Rank me_ = -1;
  std::vector<std::vector<Rank>> teams_;
  TeamPlace place_;
  std::vector<const void*> sources_;  // [member], of member 0
};

}  // namespace rueda::backend
