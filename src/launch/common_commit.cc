#include "launch/common_commit.h"

#include <algorithm>

namespace rueda::launch {
namespace {

using Phase = status::ViewChange::Phase;

constexpr int64_t kMostAhead = 1 << 20;

}  // namespace

CommonCommit::Orders CommonCommit::begin(const std::vector<Member>& members, const Reasons& reasons) {
  members_.clear();
  for (const Member& one : members) members_[one.number].does_leave = one.does_leave;
  reasons_ = reasons;
  ahead_ = 1;
  return tell(Phase::kAsked, -1);
}

CommonCommit::Orders CommonCommit::tell(Phase phase, int64_t commit) {
  // The confirmation belongs to the round of its proposal.
  if (phase != Phase::kConfirmed) ++round_;
  phase_ = phase;
  target_ = commit;
  was_late_ = false;
  Orders orders;
  for (auto& [number, state] : members_) {
    state.has_answered = false;
    orders.emplace_back(number, status::ViewChange{.round = round_,
                                                   .phase = phase,
                                                   .commit = commit,
                                                   .are_hosts_added = reasons_.are_hosts_added,
                                                   .are_hosts_removed = reasons_.are_hosts_removed,
                                                   .does_leave = state.does_leave});
  }
  return orders;
}

bool CommonCommit::have_all_answered() const {
  return std::ranges::all_of(members_, [](const auto& one) { return one.second.has_answered; });
}

CommonCommit::Orders CommonCommit::on_report(int number, uint16_t round, int64_t commit, int answer) {
  const auto member = members_.find(number);
  const bool is_awaited = phase_ == Phase::kAsked || phase_ == Phase::kProposed;
  if (member == members_.end() || round != round_ || !is_awaited) return {};
  member->second.has_answered = true;
  member->second.commit = std::max(member->second.commit, commit);
  was_late_ = was_late_ || (phase_ == Phase::kProposed && answer < 0);
  if (!have_all_answered()) return {};
  if (phase_ == Phase::kProposed && !was_late_) return tell(Phase::kConfirmed, target_);
  if (phase_ == Phase::kProposed) {
    ahead_ = std::min(2 * ahead_, kMostAhead);
    return tell(Phase::kAsked, -1);
  }
  int64_t furthest = -1;
  for (const auto& [other, state] : members_) furthest = std::max(furthest, state.commit);
  return tell(Phase::kProposed, furthest + ahead_);
}

CommonCommit::Orders CommonCommit::end() {
  if (!is_under_way()) return {};
  reasons_ = {};
  for (auto& [number, state] : members_) state.does_leave = false;
  Orders orders = tell(Phase::kNone, -1);
  members_.clear();
  return orders;
}

}  // namespace rueda::launch
