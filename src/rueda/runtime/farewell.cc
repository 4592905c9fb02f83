#include "rueda/runtime/farewell.h"

#include <algorithm>

namespace rueda::runtime {

Farewell::Actions Farewell::drain(Rank leaver, Facts facts) {
  if (!is_running()) return {};
  if (first_leaver_ < 0) first_leaver_ = leaver;
  if (facts.has_plan) {
    drains_after_plan_ = true;
    return {Action::kEndPlan};
  }
  phase_ = Phase::kDraining;
  if (!is_coordinator()) return {};
  return {Action::kTellOthers};
}

void Farewell::on_done(Rank from) {
  if (is_coordinator())
    has_stopped_[static_cast<size_t>(from)] = true;
  else
    phase_ = Phase::kClosed;
}

void Farewell::on_loss(Rank peer) {
  if (is_coordinator()) has_stopped_[static_cast<size_t>(peer)] = true;
  if (peer == 0) phase_ = Phase::kClosed;
}

Farewell::Actions Farewell::tick(Facts facts) {
  Actions actions;
  if (drains_after_plan_ && !facts.has_plan) actions = drain(first_leaver_, facts);
  if (has_news()) {
    has_asked_ = true;
    if (is_coordinator())
      actions = drain(me_, facts);
    else
      actions.push_back(Action::kAskToLeave);
  }
  if (phase_ == Phase::kDraining && facts.is_idle) {
    phase_ = Phase::kStopped;
    has_stopped_[static_cast<size_t>(me_)] = true;
    actions.push_back(Action::kStop);
  }
  if (phase_ == Phase::kStopped && is_coordinator() &&
      std::ranges::all_of(has_stopped_, [](bool has) { return has; })) {
    phase_ = Phase::kClosed;
    actions.push_back(Action::kReleaseAll);
  }
  return actions;
}

}  // namespace rueda::runtime
