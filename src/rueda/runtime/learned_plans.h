// Learned plans in the engine: tells control::Planner what happens, and carries out those of its actions that
// concern this rank alone. Negotiation hands them over, and carries out the others. Engine thread only.
#pragma once

#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rueda/base/clock.h"
#include "rueda/base/status.h"
#include "rueda/base/trace_sink.h"
#include "rueda/control/planner.h"
#include "rueda/runtime/dispatcher.h"
#include "rueda/runtime/operations.h"
#include "rueda/runtime/ready_streams.h"

namespace rueda::runtime {

class LearnedPlans {
 public:
  using Options = control::Planner::Options;
  LearnedPlans(Options options, Operations& operations, Dispatcher& dispatcher, ReadyStreams& ready_streams,
               EngineCounters& counters, TraceSink& trace);

  // ---- events; what they return is carried out before the next ----
  // A new operation.
  control::Planner::Decision take(const std::shared_ptr<Operation>& operation);
  // As in Planner::response().
  Result<std::optional<control::PlannerActions>> accept(control::Response& response);
  // The next bucket, if it may start at once.
  std::optional<control::StartBucket> next(Nanos now);
  // Departs if the other ranks do not start a bucket; if a thread waits for a tensor that cannot complete.
  control::PlannerActions tick(Nanos now);
  control::PlannerActions wanted(Nanos now);
  // The other events. For control::Rounds as well.
  [[nodiscard]] control::Planner& planner() { return planner_; }
  [[nodiscard]] const control::Planner& planner() const { return planner_; }
  // As in the planner.
  [[nodiscard]] Nanos next_event() const { return planner_.next_event(dispatcher_.is_idle()); }
  [[nodiscard]] control::Planner::Progress place(Nanos now) const {
    constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
    const int64_t open = dispatcher_.order().first_open_bucket(kNone);
    return planner_.place(now, dispatcher_.is_idle(), open == kNone ? -1 : open);
  }

  // ---- actions ----
  void carry_out(control::PlanBegun&);
  void carry_out(control::PlanOver& over);
  void carry_out(control::StartBucket& started);
  void carry_out(control::SetGeneration& set) { dispatcher_.set_generation(set.generation); }
  void carry_out(control::Cancel& cancelled) { dispatcher_.cancel(cancelled.number, cancelled.arrivals); }
  void carry_out(control::Resume&) { dispatcher_.resume(); }
  void carry_out(control::Discard& discarded);
  // This rank departs; the coordinator is told by the caller.
  void note(const control::TellDeparture& told);

 private:
  void forget_finished();
  void find_waiting();
  void mark_full_buckets(std::span<const size_t> positions);

  Operations& operations_;
  Dispatcher& dispatcher_;
  ReadyStreams& ready_streams_;
  EngineCounters& counters_;
  TraceSink& trace_;
  control::Planner planner_;
  std::vector<const control::TensorRequest*> requests_;  // of take(); kept for its memory
  std::vector<control::PlanPlace*> places_;              // the same
  std::vector<std::optional<TensorRef>> waiting_;        // [position in the plan]
  std::string departure_;                                // why this rank departs; empty: another rank does
};

}  // namespace rueda::runtime
