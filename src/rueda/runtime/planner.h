// Learned plans in the engine: joins the pure parts of control/plans.h to operations, dispatcher and frames.
// Engine thread only.
#pragma once

#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "rueda/base/clock.h"
#include "rueda/control/coordinator.h"
#include "rueda/control/plans.h"
#include "rueda/runtime/dispatcher.h"
#include "rueda/runtime/operations.h"

namespace rueda::runtime {

// What the planner has others do.
struct PlannerActions {
  // To the coordinator; on rank 0 to itself.
  std::function<void(control::FrameType, const control::PlanNews&)> tell_coordinator;
  std::function<void(std::span<const control::Request>)> negotiate;
  // For the timeline.
  std::function<void(const Operation&)> negotiation_is_over;
  std::function<void(const Operation&)> is_taken;  // by a plan; it waits for its bucket now
  std::function<void(const control::Response&)> bucket_starts;
  std::function<void()> plan_is_over;
  // Coordinator only: to every rank, itself included.
  std::function<void(const control::PlanNews&)> freeze_all;
  std::function<void(std::vector<control::Response>)> respond;
};

class Planner {
 public:
  struct Options {
    bool may_plan = false;  // coordinator: propose plans at all
    int64_t bucket_bytes = 1 << 20;
    Rank me = 0, ranks = 1;
  };
  Planner(Options options, Operations& operations, Dispatcher& dispatcher, EngineCounters& counters,
          PlannerActions actions);

  // ---- every rank ----
  // A new operation: true when the plan takes it; else it must be negotiated (and this rank departs).
  bool take(const std::shared_ptr<Operation>& operation);
  // A response in the global order: true when it concerned plans and is dealt with.
  bool accept(control::Response& response);
  // Starts what may start. True if anything did.
  bool progress(Nanos now);
  // Departs when a wait would be in vain, or when the others do not come.
  void watch(Nanos now);
  [[nodiscard]] Nanos next_event() const;
  void on_freeze(const control::PlanNews& news);
  void depart(const std::string& why);
  [[nodiscard]] int64_t plans_begun() const { return plans_begun_; }

  // ---- coordinator ----
  void saw_submissions(std::span<const control::Request> requests);
  void saw_responses(std::span<const control::Response> responses);
  // A plan begins if one is learned and nothing is in its way.
  void propose(control::Coordinator& coordinator, Nanos now, TraceSink* trace);
  // Nothing else runs while a plan is active: responses wait for its end.
  [[nodiscard]] bool holds_back() const { return ledger_.is_active(); }
  void on_depart(const control::PlanNews& news);
  void on_position(Rank from, const control::PlanNews& news);

 private:
  void begin(int64_t generation);
  void end(const control::Response& response);
  void answered(const control::Response& response);
  [[nodiscard]] bool fits(const Operation& operation) const;
  [[nodiscard]] control::PlanNews news() const;

  Options options_;
  Operations& operations_;
  Dispatcher& dispatcher_;
  EngineCounters& counters_;
  PlannerActions actions_;
  control::PlanLearner learner_;
  control::PlanLedger ledger_;
  control::PlanRunner runner_;
  std::vector<control::Response> arriving_;  // buckets of the plan that is about to begin
  // Operations sent to the coordinator and not answered yet, in order of submission.
  std::map<int64_t, std::shared_ptr<Operation>> unanswered_;
  int64_t plans_begun_ = 0;
  uint16_t generation_ = 0;  // of backend calls: every begin and every end changes it
  Nanos started_at_ = 0;     // of the bucket that runs
  Nanos taken_at_ = 0;       // the last operation
  uint64_t seen_wants_ = 0;
  Nanos next_look_ = 0;
};

}  // namespace rueda::runtime
