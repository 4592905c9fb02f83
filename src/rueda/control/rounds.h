// Rounds of negotiation on rank 0: when one begins, which tensors leave in it, and when stalls are reported.
// Joins the Coordinator to the Planner of its rank. A pure state machine: events in (time and facts
// included), values out, to be carried out in their order before the next event. No I/O, no clock, no
// threads.
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
    Nanos cycle_time = 0;  // from one round to the next; meanwhile tensors become ready and are fused
    // Responses that rank 0 keeps in progress; what becomes ready beyond them waits, and is fused.
    size_t max_backlog = 2;
  };
  // planner: of rank 0; outlives this object.
  Rounds(CoordinatorOptions coordinator, Options options, Planner& planner)
      : options_(options), coordinator_(std::move(coordinator)), planner_(planner) {}

  // Requests of one rank. plans_begun: how many plans it had seen begin when it sent them.
  void submitted(Rank from, int64_t plans_begun, std::vector<Request> requests, Nanos now, TraceSink* trace);
  // What is to be reported now. If one is fatal, the job ends and no round begins any more.
  std::vector<StallReport> take_stalls(Nanos now);
  // A round, if one may begin and anything is ready: what every rank does next, this one included. backlog:
  // responses in progress on this rank. After they are handed out: responded().
  std::vector<Response> take_round(Nanos now, size_t backlog, TraceSink* trace);
  // A plan begins if one is learned and nothing is in its way.
  Actions responded(Nanos now, TraceSink* trace);

  // A round may begin, or stalls be reported, by itself. A time that has passed: nothing is awaited.
  [[nodiscard]] Nanos next_round() const { return next_round_; }
  [[nodiscard]] Nanos next_stall_check() const { return next_stall_check_; }
  // As Coordinator.
  [[nodiscard]] std::string pending_summary() const { return coordinator_.pending_summary(); }

 private:
  Options options_;
  Coordinator coordinator_;
  Planner& planner_;
  Nanos next_round_ = 0;
  Nanos next_stall_check_ = 0;
};

}  // namespace rueda::control
