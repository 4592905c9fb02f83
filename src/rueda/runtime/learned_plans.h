// Learned plans in the engine: tells control::Planner what happens, and carries out the actions that it
// returns. Engine thread only.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "rueda/base/clock.h"
#include "rueda/base/status.h"
#include "rueda/control/coordinator.h"
#include "rueda/control/planner.h"
#include "rueda/runtime/dispatcher.h"
#include "rueda/runtime/operations.h"

namespace rueda::runtime {

// Actions of the planner that Negotiation carries out.
struct PlanCallbacks {
  // To the coordinator; on rank 0 to itself.
  std::function<void(control::MessageType, const control::PlanReport&)> tell_coordinator;
  std::function<void(std::span<const control::Request>)> negotiate;
  // For the timeline.
  std::function<void()> bucket_starts;
  std::function<void()> plan_begins;
  std::function<void(const std::string& why)> plan_is_over;
  // Coordinator only: to every rank, itself included.
  std::function<void(const control::PlanReport&)> freeze_all;
  std::function<void(std::vector<control::Response>)> respond;
};

class LearnedPlans {
 public:
  using Options = control::Planner::Options;
  LearnedPlans(Options options, Operations& operations, Dispatcher& dispatcher, EngineCounters& counters,
               PlanCallbacks callbacks);

  // ---- every rank ----
  // A new operation. True if it waits for its bucket or for the end of the plan; otherwise it must be
  // negotiated.
  bool take(const std::shared_ptr<Operation>& operation);
  // A response in the global order. True if it concerned plans; then there is nothing more to do. Fails if it
  // contradicts what this rank knows of the plan.
  Result<bool> accept(control::Response& response);
  // Starts what may start. True if anything did.
  bool progress(Nanos now);
  // Departs if a thread waits for a tensor that cannot complete, or if the other ranks do not start a bucket.
  void watch(Nanos now);
  [[nodiscard]] Nanos next_event() const { return planner_.next_event(dispatcher_.is_idle()); }
  void on_freeze(const control::PlanReport& news) { carry_out(planner_.on_freeze(news)); }
  void depart(const std::string& why) { carry_out(planner_.depart(why)); }
  [[nodiscard]] control::Planner::Progress place(Nanos now) const {
    return planner_.place(now, dispatcher_.is_idle());
  }
  [[nodiscard]] int64_t plans_begun() const { return planner_.plans_begun(); }
  [[nodiscard]] bool awaits_answers() const { return planner_.awaits_answers(); }
  [[nodiscard]] bool awaits_world() const {
    return planner_.awaits_world();
  }  // an answer about process set 0

  // ---- coordinator ----
  // For control::Rounds.
  [[nodiscard]] control::Planner& planner() { return planner_; }
  // Nothing else runs while a plan is active: responses wait for its end.
  [[nodiscard]] bool holds_back() const { return planner_.holds_back(); }
  void on_depart(const control::PlanReport& news) { carry_out(planner_.on_depart(news)); }
  // Fails if the position cannot be true.
  Status on_position(Rank from, const control::PlanReport& news);

  // Carries out the actions in order. One may lead to further events, whose actions are carried out before
  // the rest; no decision is under way then.
  void carry_out(control::PlannerActions actions);

 private:
  void carry_out(control::TellDeparture& told);
  void carry_out(control::TellPosition& told);
  void carry_out(control::Negotiate& negotiated) { callbacks_.negotiate(negotiated.requests); }
  void carry_out(control::PlanBegun&);
  void carry_out(control::PlanOver&);
  void carry_out(control::StartBucket& started);
  void carry_out(control::SetGeneration& set) { dispatcher_.set_generation(set.generation); }
  void carry_out(control::Cancel& cancelled) { dispatcher_.cancel(cancelled.number, cancelled.arrivals); }
  void carry_out(control::Resume&) { dispatcher_.resume(); }
  void carry_out(control::Discard& discarded);
  void carry_out(control::FreezeAll& frozen) { callbacks_.freeze_all(frozen.news); }
  void carry_out(control::Respond& said) { callbacks_.respond(std::move(said.responses)); }
  void forget_finished();

  Operations& operations_;
  Dispatcher& dispatcher_;
  EngineCounters& counters_;
  PlanCallbacks callbacks_;
  control::Planner planner_;
  std::vector<const control::TensorRequest*> requests_;  // of take(); kept for its memory
  std::string departure_;                                // why this rank departs; empty: another rank does
};

}  // namespace rueda::runtime
