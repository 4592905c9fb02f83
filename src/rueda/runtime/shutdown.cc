#include "rueda/runtime/shutdown.h"

#include <algorithm>

namespace rueda::runtime {

ShutdownActions Shutdown::drain(Rank leaver, EngineState engine) {
  if (!is_running()) return {};
  if (first_leaver_ < 0) first_leaver_ = leaver;
  if (engine.has_plan) {
    drains_after_plan_ = true;
    return {ShutdownAction::kEndPlan};
  }
  phase_ = Phase::kDraining;
  if (!is_coordinator()) return {};
  return {ShutdownAction::kTellOthers};
}

ShutdownActions Shutdown::release() {
  if (is_closed()) return {};
  phase_ = Phase::kClosed;
  return {ShutdownAction::kReleaseAll};
}

ShutdownActions Shutdown::on_done(Rank from) {
  if (!is_coordinator()) return release();
  has_stopped_[static_cast<size_t>(from)] = true;
  return {};
}

ShutdownActions Shutdown::on_loss(Rank peer) {
  if (is_coordinator()) has_stopped_[static_cast<size_t>(peer)] = true;
  if (peer == parent_) return release();
  return {};
}

ShutdownActions Shutdown::tick(EngineState engine) {
  ShutdownActions actions;
  if (drains_after_plan_ && !engine.has_plan) actions = drain(first_leaver_, engine);
  if (has_news()) {
    has_asked_ = true;
    if (is_coordinator())
      actions = drain(me_, engine);
    else
      actions.push_back(ShutdownAction::kAskToLeave);
  }
  if (phase_ == Phase::kDraining && engine.is_idle) {
    phase_ = Phase::kStopped;
    has_stopped_[static_cast<size_t>(me_)] = true;
    actions.push_back(ShutdownAction::kStop);
  }
  if (phase_ == Phase::kStopped && is_coordinator() &&
      std::ranges::all_of(has_stopped_, [](bool has) { return has; })) {
    for (const ShutdownAction action : release()) actions.push_back(action);
  }
  return actions;
}

}  // namespace rueda::runtime
