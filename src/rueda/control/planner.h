// What one rank decides about learned plans (buckets that recur, and run without negotiation): which
// submitted tensors belong to the plan, which bucket starts next, and what has to be done when a plan
// begins or ends. On rank 0 it also proposes plans and ends them. It combines the parts of plans.h;
// runtime/learned_plans.h calls it and carries out its actions. A pure state machine: events in (time
// included), actions out; the caller carries them out in order before the next event. No I/O, no clock,
// no threads, no callbacks.
//
// Example: 2 ranks, plan 1 of two buckets, {a, b} and {c}. The first pass is buckets 0 and 1, the second 2
// and 3, and so on. Both ranks run the first pass. Then rank 0 submits a and b, so it starts bucket 2, and
// sends 4 of its messages to rank 1. Rank 1 submits x, which is not in the plan: TellDeparture. Rank 0
// answers with FreezeAll, and both ranks say how many buckets they have started: rank 0 has started 3, one of
// them under way with 4 messages to rank 1; rank 1 has started 2. The plan ends after 2 buckets, the lesser
// of the two. Rank 0 has Cancel for bucket 2, with its tensors unchanged, and negotiates a and b. Rank 1 has
// Discard for bucket 2, which receives the 4 messages and throws them away, and negotiates x.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "rueda/base/clock.h"
#include "rueda/control/backend_traits.h"
#include "rueda/control/plan_actions.h"
#include "rueda/control/plan_maker.h"
#include "rueda/control/plans.h"

namespace rueda::control {

class Planner {
 public:
  struct Options {
    bool may_plan = false;  // coordinator: whether it proposes plans
    int64_t bucket_bytes = 1 << 20;
    Rank me = 0, ranks = 1;
    BackendTraitsLookup traits_of = default_traits;
    // If the other ranks do not start a bucket for so long, this rank departs. A rank that is merely late
    // costs no plan: the judge names it, and the stall check sees what waits in plans.
    Nanos patience = 2 * 60 * kSecond;
    Tuner::Options tuner = {};  // coordinator
  };
  explicit Planner(Options options)
      : options_(std::move(options)),
        maker_({.may_plan = options_.may_plan,
                .bucket_bytes = options_.bucket_bytes,
                .ranks = options_.ranks,
                .traits_of = options_.traits_of,
                .tuner = options_.tuner}) {}

  // ---- events of every rank ----
  struct Decision {
    bool is_taken = false;  // until the plan ends; otherwise it must be negotiated
    PlannerActions actions;
    // Where the plan has the tensors of the operation; empty if it has not. Valid until the next event.
    std::span<const size_t> positions = {};
  };
  // A new operation and its requests: one, or the members of one group. places: where each was the last time
  // that the same request was submitted, and, when this returns, where it is now; or none.
  Decision submitted(OperationId operation, std::span<const TensorRequest* const> requests, Nanos now,
                     std::span<PlanPlace* const> places = {});
  // A new operation that no plan contains, as a change of the process sets.
  Decision submitted(OperationId operation, std::vector<Request> requests);
  // A response in the global order. Empty if it does not concern plans; then it runs. Fails if it contradicts
  // what this rank knows of the plan.
  Result<std::optional<PlannerActions>> response(Response& response, Nanos now);
  // There is room for one more bucket. Returns the next one, which begins with number started(), if all its
  // tensors are ready. first_open: the first bucket of the plan that has not ended on this rank; started() if
  // all have.
  std::optional<StartBucket> room(Nanos now, int64_t first_open);
  // A call under way has moved, so the other ranks have come.
  void moved(Nanos now) { moved_at_ = now; }
  // Departs if the other ranks do not start a bucket, or if this rank submits nothing more. The coordinator
  // ends the plan between two passes where the tuner wants other buckets.
  PlannerActions tick(Nanos now, bool is_idle);
  // This rank's place in the plan. is_idle: no bucket is under way. open: the first one that is.
  struct Progress {
    int64_t plan_number = 0;  // 0: no plan runs
    int64_t started = 0;      // the number of the next bucket
    int64_t open = -1;        // of the first one under way; -1: none is
    Nanos stuck_for = 0;      // nothing has moved for so long; 0: no bucket is under way
    std::string lacks;        // a tensor of the next bucket that this rank has not submitted
  };
  [[nodiscard]] Progress place(Nanos now, bool is_idle, int64_t open = -1) const;
  // is_wanted(position): whether a thread waits for the tensor that waits at this position of the plan.
  // Departs if one of them cannot complete in the plan. All earlier submissions must be known.
  // asks_for_wanted() says when to call wanted(): when a thread begins to wait (`waits` has grown), and every
  // few milliseconds.
  [[nodiscard]] bool asks_for_wanted(Nanos now, uint64_t waits) const;
  PlannerActions wanted(Nanos now, uint64_t waits, const std::function<bool(size_t)>& is_wanted);
  // Calls f(position, left_over) for each tensor that waits in the plan for its bucket to start.
  template <class F>
  void for_each_waiting(const F& f) const {
    for (size_t position = 0; position < runner_.tensors(); ++position)
      if (const LeftOver* waiting = runner_.waiting_at(position)) f(position, *waiting);
  }
  [[nodiscard]] size_t planned_tensors() const { return runner_.tensors(); }
  // As PlanRunner::full_bucket_of(), while a plan is active.
  [[nodiscard]] std::optional<PlanRunner::Positions> full_bucket_of(size_t position) const {
    return runner_.full_bucket_of(position);
  }
  PlannerActions on_freeze(const PlanReport& news);
  PlannerActions depart(const std::string& why);
  // The operation has failed for another reason, so it is not negotiated again.
  void forget(OperationId operation);

  [[nodiscard]] Nanos next_event(bool is_idle) const;
  [[nodiscard]] bool has_plan() const { return runner_.is_active(); }
  [[nodiscard]] int64_t started() const { return runner_.started(); }  // buckets of the plan
  [[nodiscard]] int64_t plans_begun() const { return plans_begun_; }
  // Something is not answered, whether it was sent already or is held back.
  [[nodiscard]] bool awaits_answers() const { return !unanswered_.empty() || !held_back_.empty(); }
  // Something of process set 0 is not answered. A change of process sets concerns the world.
  [[nodiscard]] bool awaits_world() const;
  // Sent to the coordinator and not answered yet, in order of submission.
  [[nodiscard]] const std::map<OperationId, std::vector<Request>>& unanswered() const { return unanswered_; }

  // On rank 0: the events of the coordinator.
  [[nodiscard]] PlanMaker& maker() { return maker_; }
  [[nodiscard]] const PlanMaker& maker() const { return maker_; }

 private:
  Result<std::optional<PlannerActions>> begin(const PlanBegin& begins, Nanos now);
  Result<std::optional<PlannerActions>> end(const PlanEnd& end);
  // Cancels or discards the buckets that not all ranks have started.
  void undo(const PlanEnd& end, PlannerActions& actions) const;
  // Puts the tensors into the plan, all or none.
  bool take(OperationId operation, std::span<const TensorRequest* const> requests, Nanos now,
            std::span<PlanPlace* const> places = {});
  PlannerActions hold_back(OperationId operation, std::vector<Request> requests, const std::string& why);
  void remember(OperationId operation, std::vector<Request> requests);
  void answered(const Response& response);
  [[nodiscard]] PlanReport news() const;

  Options options_;
  PlanMaker maker_;
  PlanRunner runner_;
  std::map<OperationId, std::vector<Request>> held_back_;  // not in the plan; negotiated once it is over
  std::vector<size_t> positions_;                          // of the last take()
  std::vector<Bucket> arriving_;                           // buckets of the plan that is about to begin
  std::map<OperationId, std::vector<Request>> unanswered_;
  std::map<std::pair<int32_t, std::string>, OperationId> operation_of_;  // (process set, name); unanswered
  int64_t plans_begun_ = 0;
  uint16_t generation_ = 0;  // of backend calls; changes when a plan begins or ends
  Nanos moved_at_ = 0;       // when a bucket last started or moved
  Nanos taken_at_ = 0;       // when the plan took the last operation
  uint64_t seen_waits_ = 0;
  Nanos next_look_ = 0;
};

}  // namespace rueda::control
