// How a rank leaves in good order: everything that the coordinator has ordered completes, then all ranks
// report that they have stopped, and only then close their connections. Pure: events in, actions out; the
// caller carries them out in order before the next event.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "rueda/base/types.h"

namespace rueda::runtime {

// What the engine does next.
enum class ShutdownAction : uint8_t {
  kAskToLeave,  // tell the coordinator
  kEndPlan,     // coordinator: first end the learned plan
  kTellOthers,  // coordinator: a rank leaves (Shutdown::first_leaver())
  kStop,        // refuse everything from now on; all but the coordinator report that they have stopped
  kReleaseAll,  // all ranks have stopped: those below this one may close
};
using ShutdownActions = std::vector<ShutdownAction>;

// What the shutdown must know of the engine.
struct EngineState {
  bool has_plan = false;  // coordinator: a learned plan is active
  bool is_idle = false;   // everything ordered is complete
};

class Shutdown {
 public:
  // Draining: nothing new is accepted. Stopped: nothing of this rank is under way. Closed: the epoch is over.
  enum class Phase : uint8_t { kRunning, kDraining, kStopped, kClosed };

  // parent: -1 on the coordinator.
  Shutdown(Rank me, Rank size, Rank parent)
      : me_(me), parent_(parent), has_stopped_(static_cast<size_t>(size), false) {}

  // This rank wants to leave. Any thread.
  void leave() { wants_to_leave_.store(true); }
  // leaver: the rank that asked first. On the coordinator: the rank that asks now.
  ShutdownActions on_shutdown(Rank leaver, EngineState engine) { return drain(leaver, engine); }
  // On the coordinator: that rank has stopped. On other ranks: all ranks have stopped.
  ShutdownActions on_done(Rank from);
  // The peer was lost after this rank had stopped. Nothing of this rank depends on it any more.
  ShutdownActions on_loss(Rank peer);
  // The epoch ends in another way.
  void close() { phase_ = Phase::kClosed; }
  // At every turn of the engine.
  ShutdownActions tick(EngineState engine);

  [[nodiscard]] Phase phase() const { return phase_; }
  [[nodiscard]] bool is_running() const { return phase_ == Phase::kRunning; }
  [[nodiscard]] bool is_closed() const { return phase_ == Phase::kClosed; }
  // A thread has called leave(), and tick() has not seen it yet.
  [[nodiscard]] bool has_news() const { return wants_to_leave_ && !has_asked_ && is_running(); }
  // The rank that asked first to shut down; -1 if unknown.
  [[nodiscard]] Rank first_leaver() const { return first_leaver_; }

 private:
  [[nodiscard]] bool is_coordinator() const { return parent_ < 0; }
  ShutdownActions release();
  ShutdownActions drain(Rank leaver, EngineState engine);

  Rank me_, parent_;
  std::atomic<bool> wants_to_leave_{false};
  bool has_asked_ = false;
  Phase phase_ = Phase::kRunning;
  bool drains_after_plan_ = false;  // coordinator
  Rank first_leaver_ = -1;
  std::vector<bool> has_stopped_;  // coordinator: [rank]
};

}  // namespace rueda::runtime
