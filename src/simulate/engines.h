// The engines of all ranks under virtual time. The planner, the rounds of negotiation and the dispatch order
// of every rank are those that train; this class carries out what they decide, as runtime/ does, and lets
// messages and calls take time. No I/O, no clock, no threads.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "rueda/control/order.h"
#include "rueda/control/rounds.h"
#include "simulate/agenda.h"
#include "simulate/calls.h"

namespace rueda::simulate {

struct EngineOptions {
  Rank ranks = 1;
  bool plans = true;
  int64_t fusion_bytes = 64 << 20;  // of one bucket
  int64_t bucket_bytes = 1 << 20;   // of a plan
  int64_t alone_bytes = 1 << 20;    // a tensor of this size or more travels alone
  int64_t priority_bytes = 2 << 20;
  Nanos cycle_time = 0;
  size_t channels = 2;    // calls that run at once
  Nanos flight = 20'000;  // of a control message
  Nanos control = 3'000;  // that rank 0 is busy with each
  control::Tuner::Options tuner = {};
};

// A tensor that the ranks exchange. Each is in flight once on a rank.
struct Exchanged {
  Collective what = Collective::kAllreduce;
  int64_t count = 0;  // elements of a rank's input, float32; alltoall: evenly to all ranks
  int32_t priority = 0;
  size_t group = 0;  // its first tensor; all of a group are submitted at once
  size_t members = 1;
};

class Engines {
 public:
  // done(rank, tensor): its result is there. agenda and calls outlive this object.
  Engines(EngineOptions options, const std::vector<Exchanged>& tensors, Agenda& agenda, Calls& calls,
          std::function<void(Rank, size_t)> done);
  ~Engines();
  void submit(Rank rank, size_t group);  // its first tensor
  // The training thread of the rank has begun to wait: for everything that it has submitted, or for one
  // group.
  void wait_for_all(Rank rank);
  void wait_for(Rank rank, size_t group);
  // Lets the calls that end next end. There must be some: calls.next() is not kNever.
  void run_next_calls();
  void tick();  // to be called every 100 ms

  // Why rank 0 has refused a tensor, as the library would; ok: it has not.
  [[nodiscard]] const Status& refusal() const { return refusal_; }

  // On rank 0: all so far, and those since it was asked last, in their order.
  [[nodiscard]] int64_t calls_begun() const { return calls_begun_; }
  [[nodiscard]] std::vector<StartedCall> take_started() { return std::exchange(started_, {}); }
  [[nodiscard]] int64_t messages() const { return messages_; }  // about which tensors run
  [[nodiscard]] int64_t plans_begun() const;
  [[nodiscard]] std::vector<control::Tuner::News> take_tuner_news();
  [[nodiscard]] const control::BucketWay& best_way() const;

 private:
  struct Node;
  void send_to_coordinator(Rank from, std::function<void()> what);
  void broadcast(const std::function<void(Rank)>& what);
  void complete(const CallEnd& end);
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

  EngineOptions options_;
  std::vector<Exchanged> tensors_;
  std::vector<control::TensorRequest> requests_;  // [tensor] of any rank
  Agenda& agenda_;
  Calls& calls_;
  std::function<void(Rank, size_t)> done_;
  std::vector<Node> nodes_;
  std::unique_ptr<control::Rounds> rounds_;  // of rank 0
  std::vector<CallEnd> ended_;
  Status refusal_ = Status::ok();
  Nanos coordinator_free_ = 0;
  int64_t messages_ = 0, calls_begun_ = 0;
  std::vector<StartedCall> started_;
};

}  // namespace rueda::simulate
