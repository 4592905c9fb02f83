// What one rank decides about learned plans (buckets that recur, and run without negotiation): which
// submitted tensors belong to the plan, which bucket starts next, and what has to be done when a plan begins
// or ends. On rank 0 it also proposes plans and ends them. It joins the parts of plans.h; runtime/planner.h
// feeds it and carries out its actions. A pure state machine: events in (time and facts included), actions
// out, to be carried out in their order before the next event. No I/O, no clock, no threads, no callbacks.
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
#include "rueda/control/treatment.h"

namespace rueda::control {

// ---- actions of every rank ----
struct TellDeparture {  // to the coordinator: on_depart() there
  PlanNews news;
  std::string why;
};
struct TellPosition {  // stop sending for the buckets that run, add what was sent for them, tell the
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
  SharedBucket bucket;
  int64_t number = 0;  // counted from the begin of the plan
};
// Calls that start from now on belong to another generation: what is cancelled must not be taken for what
// comes in its place.
struct SetGeneration {
  uint16_t generation = 0;
};
struct Cancel {  // a bucket I have started. arrivals: [ranks] messages that each rank has sent to me for it
  int64_t number = 0;
  std::vector<int32_t> arrivals;
};
struct Resume {};  // sending for the other buckets that run
struct Discard {   // a bucket I have not started: others have sent for it and cancelled it
  int64_t number = 0;
  Bucket bucket;
  std::vector<int32_t> arrivals;
};
// ---- actions of the coordinator ----
struct FreezeAll {  // every rank, itself included: on_freeze() there
  PlanNews news;
};
struct Respond {  // to every rank, itself included, in the global order
  std::vector<Response> responses;
};

using Action = std::variant<TellDeparture, TellPosition, Negotiate, NegotiationOver, PlanBegun, PlanOver,
                            StartBucket, SetGeneration, Cancel, Resume, Discard, FreezeAll, Respond>;
using Actions = std::vector<Action>;

class Planner {
 public:
  struct Options {
    bool may_plan = false;  // coordinator: propose plans at all
    int64_t bucket_bytes = 1 << 20;
    Rank me = 0, ranks = 1;
    Treatments treatment_of = default_treatment;
  };
  explicit Planner(Options options) : options_(std::move(options)), learner_(options_.bucket_bytes) {}

  // ---- events of every rank ----
  struct Submitted {
    bool is_taken = false;  // by the plan; else it must be negotiated, after the actions (this rank departs)
    Actions actions;
  };
  // A new operation and its requests: one, or the members of one group.
  Submitted submitted(OperationId operation, std::span<const TensorRequest* const> requests, Nanos now);
  // A new operation that changes the process sets: it must be negotiated, after the actions.
  Actions submitted(OperationId operation, const SetChange& change);
  // A response in the global order. Nothing: it does not concern plans, and runs. Not ok: it contradicts what
  // this rank knows of the plan.
  Result<std::optional<Actions>> response(Response& response, Nanos now);
  // There is room for a bucket, the one with the number started(): it, if all its tensors are ready.
  std::optional<StartBucket> room(Nanos now);
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
  [[nodiscard]] int64_t started() const { return runner_.started(); }  // buckets of the plan
  [[nodiscard]] int64_t plans_begun() const { return plans_begun_; }
  // Sent to the coordinator and not answered yet, in order of submission.
  [[nodiscard]] const std::map<OperationId, std::vector<Request>>& unanswered() const { return unanswered_; }

  // ---- events of the coordinator ----
  void saw_submissions(std::span<const Request> requests);
  void saw_responses(std::span<const Response> responses);
  // A plan begins if one is learned and nothing is in its way; with any action, the coordinator forgets what
  // waits.
  Actions propose(const Coordinator& coordinator);
  // Nothing else runs while a plan is active: responses wait for its end.
  [[nodiscard]] bool holds_back() const { return ledger_.is_active(); }
  Actions on_depart(const PlanNews& news);
  // Not ok: the position cannot be true.
  Result<Actions> on_position(Rank from, const PlanNews& news);

 private:
  Result<std::optional<Actions>> begin(int64_t plan_number, Nanos now);
  Result<std::optional<Actions>> end(const PlanEnd& end);
  // What becomes of the buckets that not all ranks have started.
  void undo(const PlanEnd& end, Actions& actions) const;
  void take(OperationId operation, std::span<const TensorRequest* const> requests, Nanos now);
  void remember(OperationId operation, std::vector<Request> requests);
  void answered(const Response& response);
  [[nodiscard]] bool fits(std::span<const TensorRequest* const> requests) const;
  [[nodiscard]] PlanNews news() const;

  Options options_;
  PlanLearner learner_;
  PlanLedger ledger_;
  PlanRunner runner_;
  std::vector<Bucket> arriving_;  // buckets of the plan that is about to begin
  std::map<OperationId, std::vector<Request>> unanswered_;
  std::map<std::pair<int32_t, std::string>, OperationId> operation_of_;  // (process set, name); unanswered
  int64_t plans_begun_ = 0;
  uint16_t generation_ = 0;  // of backend calls: every begin and every end changes it
  Nanos started_at_ = 0;     // the last bucket
  Nanos taken_at_ = 0;       // the last operation
  uint64_t seen_waits_ = 0;
  Nanos next_look_ = 0;
};

}  // namespace rueda::control
