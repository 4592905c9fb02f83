// Learned plans: once the same allreduces (and barriers) recur step after step, ranks stop negotiating them.
// A plan is a list of buckets in a fixed order; every rank starts the next bucket as soon as all its tensors
// are ready, without a control message. A rank that submits something else departs from the plan: the
// coordinator freezes the plan, learns how far each rank is, and ends the plan at the first bucket that not
// all ranks have started. Tensors that were submitted and not reduced are negotiated again. Pure: no I/O, no
// clock, no threads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "rueda/control/backend_traits.h"
#include "rueda/control/message_types.h"
#include "rueda/control/messages.h"

namespace rueda::control {

// On the coordinator: watches what is submitted and what runs, and proposes a plan when steps repeat.
class PlanLearner {
 public:
  // bucket_bytes: tensors are fused up to this size. A larger tensor is a bucket of its own. It may overtake
  // small tensors, so that these fuse with later ones. traits_of: where it says bucket_bytes, that holds.
  explicit PlanLearner(int64_t bucket_bytes, BackendTraitsLookup traits_of = default_traits)
      : bucket_bytes_(bucket_bytes), traits_of_(std::move(traits_of)) {}

  void saw_submission(const TensorRequest& request);  // of any rank, in order of arrival
  void saw_response(const Response& response);        // in the order all ranks follow
  // The buckets of a plan, if a step has just ended and the last steps were equal. The learner
  // then starts again.
  std::optional<std::vector<Bucket>> take_plan();
  // A plan has ended after so many buckets. If it did not last long, the steps must repeat more often before
  // the next plan.
  void plan_ended(int64_t buckets);
  void forget();

 private:
  struct Tensor {
    Bucket bucket;  // with this tensor alone
    int64_t bytes = 0;
    uint64_t seen = 0, started = 0;  // when it was first submitted and when it was answered, by clock_
  };
  void end_step();
  [[nodiscard]] bool is_like_last_step() const;
  [[nodiscard]] int64_t most_bytes(const Bucket& bucket) const;

  static constexpr int kLeastRepeats = 2;

  int64_t bucket_bytes_;
  BackendTraitsLookup traits_of_;
  int repeats_needed_ = kLeastRepeats;
  int64_t planned_ = 0;  // how many buckets the last plan had
  int repeats_ = 0;
  uint64_t clock_ = 0;  // counts submissions and responses
  std::unordered_map<std::string, uint64_t> first_seen_;
  std::vector<Tensor> step_, last_step_;
  std::unordered_map<std::string, size_t> in_step_;  // name -> position
};

// On the coordinator: how far the ranks are when a plan ends.
class PlanLedger {
 public:
  // size: buckets of one pass.
  void begin(int64_t plan_number, Rank ranks, int64_t size);
  [[nodiscard]] bool is_active() const { return is_active_; }
  [[nodiscard]] int64_t plan_number() const { return plan_number_; }
  // A rank departs. True if it is the first one; then every rank must be told to freeze.
  bool depart(int64_t plan_number);
  struct End {
    int64_t buckets = 0;      // all ranks have started these, so they run
    std::vector<Flow> flows;  // messages sent for later ones, which do not run
  };
  // A frozen rank says how far it is. Returns the end of the plan once all ranks have said so. Fails if the
  // position cannot be true.
  Result<std::optional<End>> stopped_at(Rank rank, const PlanReport& position);

 private:
  [[nodiscard]] Status check(const PlanReport& position) const;

  bool is_active_ = false, is_frozen_ = false;
  int64_t plan_number_ = 0;
  int64_t size_ = 0;                   // buckets of one pass
  std::vector<PlanReport> positions_;  // [rank], started -1: unknown
  Rank missing_ = 0;                   // how many positions are unknown
};

using OperationId = int64_t;  // the handle of an operation; each rank has its own

// A request that a rank has put into a plan and must negotiate after all.
struct LeftOver {
  OperationId operation = 0;
  TensorRequest request;
};

// On every rank: which bucket may start.
class PlanRunner {
 public:
  void begin(int64_t plan_number, std::vector<Bucket> buckets);
  // While a plan is active and not frozen, submissions go here first.
  [[nodiscard]] bool is_open() const { return is_active_ && !is_frozen_; }
  [[nodiscard]] bool is_active() const { return is_active_; }
  [[nodiscard]] int64_t plan_number() const { return plan_number_; }
  [[nodiscard]] int64_t started() const { return started_; }
  [[nodiscard]] int64_t size() const { return static_cast<int64_t>(buckets_.size()); }  // of one pass
  // False if the plan does not expect the tensor; then this rank departs. All tensors of an operation must
  // fit before one of them is accepted.
  [[nodiscard]] bool fits(const TensorRequest& request) const;
  void accept(const TensorRequest& request, OperationId operation = 0);
  [[nodiscard]] size_t waiting() const { return waiting_; }  // accepted tensors whose bucket has not started
  // The bucket to start now, or null.
  [[nodiscard]] SharedBucket next() const;
  void start_next();
  // Whether a thread that waits for this tensor would never return: its bucket, or one before it, lacks
  // tensors of this rank.
  [[nodiscard]] bool would_wait_forever(const std::string& name) const;
  // The first tensor of the next bucket that this rank has not submitted; empty if it has submitted all.
  [[nodiscard]] std::string lacks() const;
  void freeze() { is_frozen_ = true; }
  [[nodiscard]] const Bucket& bucket(int64_t started) const {
    return *buckets_[static_cast<size_t>(started) % buckets_.size()];
  }
  // The plan ends after `end` buckets. Returns what must be negotiated after all, in the order in which it
  // was submitted. The caller cancels the buckets that this rank has started beyond the end. Fails if the
  // plan cannot end there.
  Result<std::vector<LeftOver>> finish(int64_t end);

 private:
  struct PlannedTensor {
    size_t bucket = 0;
    size_t entry = 0;
    uint64_t accepted = 0;  // when, by clock_; 0: it does not wait
    LeftOver last = {};     // what was accepted last
  };
  [[nodiscard]] size_t head() const { return static_cast<size_t>(started_) % buckets_.size(); }

  bool is_active_ = false, is_frozen_ = false;
  int64_t plan_number_ = 0;
  int64_t started_ = 0;  // buckets, over all passes
  uint64_t clock_ = 0;
  size_t waiting_ = 0;
  std::vector<SharedBucket> buckets_;
  std::vector<size_t> ready_;  // [bucket] tensors that are waiting
  std::unordered_map<std::string, PlannedTensor> planned_;
};

}  // namespace rueda::control
