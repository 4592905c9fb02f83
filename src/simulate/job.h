// A training job under virtual time. The planner, the rounds of negotiation and the dispatch order of every
// rank are those that train; this class is their engine: it carries out what they decide, as runtime/ does,
// and lets messages and calls take time. Deterministic: equal times keep their order. No I/O, no clock, no
// threads.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <queue>
#include <string>
#include <tuple>
#include <vector>

#include "rueda/base/status.h"
#include "rueda/control/order.h"
#include "rueda/control/rounds.h"
#include "simulate/calls.h"
#include "simulate/program.h"

namespace rueda::simulate {

struct JobOptions {
  Rank ranks = 1;
  int steps = 1;
  bool plans = true;
  int64_t fusion_bytes = 64 << 20;  // of one bucket
  int64_t bucket_bytes = 1 << 20;   // of a plan
  int64_t alone_bytes = 1 << 20;    // a tensor of this size or more travels alone
  int64_t priority_bytes = 2 << 20;
  Nanos cycle_time = 0;
  size_t channels = 2;    // calls that run at once
  Nanos flight = 20'000;  // of a control message
  Costs costs;
  std::vector<std::vector<double>> slower;  // [rank][step] how many times as long it computes
};

// What one step of one rank took.
struct StepTimes {
  Nanos began = 0, computed = 0, ended = 0;
};

struct JobResult {
  std::vector<std::vector<StepTimes>> steps;  // [rank][step]
  std::vector<int64_t> calls, messages;       // [step] of rank 0: begun by its end, over all steps so far
  CallsUse use;
  int64_t plans_begun = 0;
};

class Job {
 public:
  // calls outlives this object.
  Job(Program program, JobOptions options, Calls& calls);
  ~Job();
  // Fails if the job hangs, which would be a fault of the library or of this simulation.
  Result<JobResult> run();

 private:
  struct Node;
  struct Event {
    Nanos when = 0;
    uint64_t order = 0;
    std::function<void()> what;
    bool operator>(const Event& other) const {
      return std::tie(when, order) > std::tie(other.when, other.order);
    }
  };
  void at(Nanos when, std::function<void()> what);
  void send_to_coordinator(Rank from, std::function<void()> what);
  void broadcast(const std::function<void(Rank)>& what);

  // ---- the training loop ----
  void begin_step(Rank rank);
  void go_forward(Rank rank);
  void begin_backward(Rank rank, Nanos from);
  void submit_next(Rank rank);
  void submit(Rank rank, size_t gradient);
  void finish_computing(Rank rank);
  void complete(const CallEnd& end);
  void complete_gradient(Rank rank, size_t gradient);
  void end_step(Rank rank);

  // ---- the engine ----
  void cycle(Rank rank);
  void coordinate();
  void respond(std::vector<control::Response> responses);
  void accept(Rank rank, const std::vector<control::Response>& responses);
  void negotiate(Rank rank, std::vector<control::Request> requests);
  void start_next(Rank rank);
  void carry_out(Rank rank, control::PlannerActions actions);
  void carry_out(Rank rank, control::TellDeparture& told);
  void carry_out(Rank rank, control::TellPosition& told);
  void carry_out(Rank rank, control::Negotiate& negotiated) {
    negotiate(rank, std::move(negotiated.requests));
  }
  void carry_out(Rank rank, control::StartBucket& started);
  void carry_out(Rank rank, control::FreezeAll& frozen);
  void carry_out(Rank, control::Respond& said) { respond(std::move(said.responses)); }
  void carry_out(Rank rank, control::SetGeneration& set);
  void carry_out(Rank rank, control::Resume&);
  void carry_out(Rank rank, control::Cancel& cancelled);
  void carry_out(Rank, control::Discard&) {}  // what others have sent for it takes no time
  void carry_out(Rank, control::PlanBegun&) {}
  void carry_out(Rank, control::PlanOver&) {}

  Program program_;
  JobOptions options_;
  Calls& calls_;
  std::vector<Node> nodes_;
  std::unique_ptr<control::Rounds> rounds_;  // of rank 0
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<CallEnd> ended_;
  uint64_t next_order_ = 0;
  Nanos now_ = 0;
  Nanos coordinator_free_ = 0;
  Rank finished_ = 0;
  int64_t messages_ = 0;
  int64_t started_ = 0;  // calls of rank 0
  JobResult result_;
};

}  // namespace rueda::simulate
