// Rounds of negotiation on rank 0: when a round begins, which tensors leave in it, and when stalls
// are reported. Connects the Coordinator to the Planner of rank 0. A pure state machine: events in
// (time included), values out; the caller acts on them in order before the next event. No I/O, no
// clock, no threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "rueda/base/clock.h"
#include "rueda/base/trace_sink.h"
#include "rueda/control/coordinator.h"
#include "rueda/control/planner.h"

namespace rueda::control {

class Rounds {
 public:
  struct Options {
    Nanos cycle_time = 0;  // from one round to the next, so that more tensors are fused
    // How many responses rank 0 keeps in progress. Tensors that become ready meanwhile wait and are fused.
    size_t max_backlog = 2;
  };
  // planner: of rank 0; outlives this object.
  Rounds(CoordinatorOptions coordinator, Options options, Planner& planner)
      : options_(options),
        world_size_(coordinator.world_size),
        coordinator_(std::move(coordinator)),
        planner_(planner) {}

  // Requests that each of these ranks has made. plans_begun: how many plans it had seen begin then. Ranks
  // that have made the very same object (RequestReader) count as one: with a thousand ranks the tensors of a
  // step are then looked up once and not for each message. While a timeline is on, each counts by itself.
  // trace outlives this object.
  void submitted(const RankSet& from, int64_t plans_begun, const SharedRequests& requests, Nanos now,
                 TraceSink* trace);
  void submitted(const RankSet& from, int64_t plans_begun, std::vector<Request> requests, Nanos now,
                 TraceSink* trace) {
    submitted(from, plans_begun, std::make_shared<const std::vector<Request>>(std::move(requests)), now,
              trace);
  }
  // The stalls to report now. If a report is fatal, the job ends and no further round begins.
  // in_plan: as in Coordinator::check_stalls.
  std::vector<StallReport> take_stalls(Nanos now, std::vector<StalledTensor> in_plan = {});
  // Begins a round, if one may begin and anything is ready. Returns what every rank, this one
  // included, does next. backlog: responses in progress on this rank. The caller hands the responses
  // out and then calls responded().
  std::vector<Response> take_round(Nanos now, size_t backlog);
  // Begins a plan, if one has been learned and nothing prevents it.
  PlannerActions responded();

  // When a round may begin, or stalls must be checked, without any other event. A time in the past means that
  // nothing is awaited.
  [[nodiscard]] Nanos next_round() const { return next_round_; }
  [[nodiscard]] Nanos next_stall_check() const { return next_stall_check_; }
  // As Coordinator.
  [[nodiscard]] std::vector<StalledTensor> waiting_longer_than(Nanos age, Nanos now) {
    pass_on_held();
    return coordinator_.waiting_longer_than(age, now);
  }
  [[nodiscard]] std::string pending_summary() {
    pass_on_held();
    return coordinator_.pending_summary();
  }

 private:
  // What ranks have submitted in the same words, one after the other, and the coordinator has not seen yet.
  struct Held {
    RankSet from;
    int64_t plans_begun = 0;
    SharedRequests requests;  // null: nothing
    Nanos at = 0;             // when the first of them did
    TraceSink* trace = nullptr;
  };

  void pass_on_held();

  Options options_;
  Rank world_size_;
  Coordinator coordinator_;
  Planner& planner_;
  Held held_;
  Nanos next_round_ = 0;
  Nanos next_stall_check_ = 0;
};

}  // namespace rueda::control
