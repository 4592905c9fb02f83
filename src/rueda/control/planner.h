// Learned plans on one rank, decided: which operations need no negotiation, which bucket starts, and what
// happens when a plan begins and ends. Joins the parts of plans.h. A pure state machine: events in (time and
// facts included), actions out, to be carried out in their order before the next event. No I/O, no clock, no
// threads, no callbacks.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "rueda/base/clock.h"
#include "rueda/control/coordinator.h"
#include "rueda/control/plans.h"

namespace rueda::control {

// ---- actions of every rank ----
struct TellDeparture {  // to the coordinator: on_depart() there
  PlanNews news;
  std::string why;
};
struct TellPosition {  // stop sending for the bucket that runs, add what was sent for it, tell the
                       // coordinator
  PlanNews news;
};
struct Negotiate {  // as if they were submitted now
  std::vector<Request> requests;
};
struct NegotiationOver {  // of what was submitted before the plan began; for the timeline
  std::vector<Request> requests;
  bool is_taken = false;  // it waits for its buckets now
};
struct PlanBegun {};
struct PlanOver {};
struct StartBucket {
  SharedResponse bucket;
};
// Calls that start from now on belong to another generation: what is cancelled must not be taken for what
// comes in its place.
struct SetGeneration {
  uint16_t generation = 0;
};
struct Cancel {  // the bucket that runs. arrivals: [ranks] messages that each rank has sent to me for it
  std::vector<int32_t> arrivals;
};
struct Resume {};  // sending for the bucket that runs
struct Drain {     // a bucket I have not started: others have sent for it and cancelled it
  Response bucket;
  std::vector<int32_t> arrivals;
};
// ---- actions of the coordinator ----
struct FreezeAll {  // every rank, itself included: on_freeze() there
  PlanNews news;
};
struct ForgetWaiting {};  // Coordinator::forget_waiting
struct Respond {          // to every rank, itself included, in the global order
  std::vector<Response> responses;
};

using Action =
    std::variant<TellDeparture, TellPosition, Negotiate, NegotiationOver, PlanBegun, PlanOver, StartBucket,
                 SetGeneration, Cancel, Resume, Drain, FreezeAll, ForgetWaiting, Respond>;
using Actions = std::vector<Action>;

class Planner {
 public:
  struct Options {
    bool may_plan = false;  // coordinator: propose plans at all
    int64_t bucket_bytes = 1 << 20;
    Rank me = 0, ranks = 1;
  };
  explicit Planner(Options options) : options_(options), learner_(options.bucket_bytes) {}

  // ---- events of every rank ----
  struct Submitted {
    bool is_taken = false;  // by the plan; else it must be negotiated, after the actions (this rank departs)
    Actions actions;
  };
  // A new operation and its requests: one, or the members of one group.
  Submitted submitted(OperationId operation, std::span<const Request* const> requests, Nanos now);
  // A response in the global order. Nothing: it does not concern plans, and runs.
  std::optional<Actions> response(Response& response, Nanos now);
  // The backend has nothing to do: the next bucket, if all its tensors are ready.
  std::optional<StartBucket> idle(Nanos now);
  // Departs when the others do not come, or this rank brings nothing more.
  Actions tick(Nanos now, bool is_idle);
  // Departs when a wait would be in vain. To be asked when somebody begins to wait (`waits` has grown) and
  // every few milliseconds, with the names that somebody waits for. All submissions must be known.
  [[nodiscard]] bool asks_for_wanted(Nanos now, uint64_t waits) const;
  Actions wanted(Nanos now, uint64_t waits, std::span<const std::string> names);
  Actions on_freeze(const PlanNews& news);
  Actions depart(const std::string& why);
  // The operation failed otherwise: it is not negotiated again.
  void forget(OperationId operation);

  [[nodiscard]] Nanos next_event(bool is_idle) const;
  [[nodiscard]] bool has_plan() const { return runner_.is_active(); }
  [[nodiscard]] int64_t plans_begun() const { return plans_begun_; }
  // Sent to the coordinator and not answered yet, in order of submission.
  [[nodiscard]] const std::map<OperationId, std::vector<Request>>& unanswered() const { return unanswered_; }

  // ---- events of the coordinator ----
  void saw_submissions(std::span<const Request> requests);
  void saw_responses(std::span<const Response> responses);
  // A plan begins if one is learned and nothing is in its way.
  Actions propose(const Coordinator& coordinator);
  // Nothing else runs while a plan is active: responses wait for its end.
  [[nodiscard]] bool holds_back() const { return ledger_.is_active(); }
  Actions on_depart(const PlanNews& news);
  Actions on_position(Rank from, const PlanNews& news);

 private:
  Actions begin(int64_t generation, Nanos now);
  Actions end(const Response& response);
  void take(OperationId operation, std::span<const Request* const> requests, Nanos now);
  void remember(OperationId operation, std::vector<Request> requests);
  void answered(const Response& response);
  [[nodiscard]] bool fits(std::span<const Request* const> requests) const;
  [[nodiscard]] PlanNews news() const;

  Options options_;
  PlanLearner learner_;
  PlanLedger ledger_;
  PlanRunner runner_;
  std::vector<Response> arriving_;  // buckets of the plan that is about to begin
  std::map<OperationId, std::vector<Request>> unanswered_;
  std::map<std::pair<int32_t, std::string>, OperationId> operation_of_;  // (process set, name); unanswered
  int64_t plans_begun_ = 0;
  uint16_t generation_ = 0;  // of backend calls: every begin and every end changes it
  Nanos started_at_ = 0;     // the bucket that runs
  Nanos taken_at_ = 0;       // the last operation
  uint64_t seen_waits_ = 0;
  Nanos next_look_ = 0;
};

}  // namespace rueda::control
