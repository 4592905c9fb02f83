// Learned plans: once the same allreduces (and barriers) recur step after step, ranks stop negotiating them.
// A plan is a list of buckets in a fixed order; every rank starts the next bucket as soon as all its tensors
// are ready, without a control message. Whoever submits something else departs from the plan: the coordinator
// freezes it, learns how far each rank is, and ends it at the first bucket that not all ranks had started;
// what was submitted and not reduced is negotiated again. Pure: no I/O, no clock, no threads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "rueda/control/message_types.h"
#include "rueda/control/messages.h"

namespace rueda::control {

// The coordinator's: watches what is submitted and what runs, and proposes a plan when steps repeat.
class PlanLearner {
 public:
  // bucket_bytes: tensors are fused up to this size; a larger one is a bucket of its own.
  explicit PlanLearner(int64_t bucket_bytes) : bucket_bytes_(bucket_bytes) {}

  void saw_submission(const TensorRequest& request);  // of any rank, in order of arrival
  void saw_response(const Response& response);        // in the order all ranks follow
  // The buckets, when a step has just ended and the last ones were alike; then it starts to watch afresh.
  std::optional<std::vector<Bucket>> take_plan();
  // A plan ended after so many buckets: one that held for long has proved its worth, after others the next
  // one needs more proof.
  void plan_ended(int64_t buckets);
  void forget();

 private:
  struct Tensor {
    Bucket bucket;  // with this tensor alone
    int64_t bytes = 0;
    uint64_t seen = 0, started = 0;  // first submission, and the response, on one clock
  };
  void end_step();
  [[nodiscard]] bool is_like_last_step() const;

  static constexpr int kLeastRepeats = 2;

  int64_t bucket_bytes_;
  int repeats_needed_ = kLeastRepeats;
  int64_t planned_ = 0;  // buckets of the last plan
  int repeats_ = 0;
  uint64_t clock_ = 0;  // counts submissions and responses
  std::unordered_map<std::string, uint64_t> first_seen_;
  std::vector<Tensor> step_, last_step_;
  std::unordered_map<std::string, size_t> in_step_;  // name -> position
};

// The coordinator's: where the ranks of a plan are when it ends.
class PlanLedger {
 public:
  // size: buckets of one round.
  void begin(int64_t plan_number, Rank ranks, int64_t size);
  [[nodiscard]] bool is_active() const { return is_active_; }
  [[nodiscard]] int64_t plan_number() const { return plan_number_; }
  // A rank departs. True when this is the first to do so: every rank must be told to freeze.
  bool depart(int64_t plan_number);
  struct End {
    int64_t buckets = 0;      // that all ranks have started: these run
    std::vector<Flow> flows;  // messages sent for later ones, which do not run
  };
  // A frozen rank says how far it is. The end of the plan, once all ranks have said so. Not ok: this cannot
  // be true.
  Result<std::optional<End>> stopped_at(Rank rank, const PlanNews& position);

 private:
  [[nodiscard]] Status check(const PlanNews& position) const;

  bool is_active_ = false, is_frozen_ = false;
  int64_t plan_number_ = 0;
  int64_t size_ = 0;                 // buckets of one round
  std::vector<PlanNews> positions_;  // [rank], started -1: unknown
  Rank missing_ = 0;
};

using OperationId = int64_t;  // of one rank: what one handle stands for

// What a rank has submitted to a plan and must negotiate after all.
struct LeftOver {
  OperationId operation = 0;
  TensorRequest request;
};

// Every rank's: which bucket may start.
class PlanRunner {
 public:
  void begin(int64_t plan_number, std::vector<Bucket> buckets);
  // While a plan is active and not frozen, submissions go here first.
  [[nodiscard]] bool is_open() const { return is_active_ && !is_frozen_; }
  [[nodiscard]] bool is_active() const { return is_active_; }
  [[nodiscard]] int64_t plan_number() const { return plan_number_; }
  [[nodiscard]] int64_t started() const { return started_; }
  [[nodiscard]] int64_t size() const { return static_cast<int64_t>(buckets_.size()); }  // of one round
  // False: it is not the plan's; this rank departs. All tensors of an operation must fit before one is
  // accepted.
  [[nodiscard]] bool fits(const TensorRequest& request) const;
  void accept(const TensorRequest& request, OperationId operation = 0);
  [[nodiscard]] size_t waiting() const { return waiting_; }  // tensors accepted, their bucket not started
  // The bucket to start now, or null.
  [[nodiscard]] SharedBucket next() const;
  void start_next();
  // Waiting for this tensor would be in vain: its bucket, or one before it, lacks tensors of this rank.
  [[nodiscard]] bool is_waiting_in_vain(const std::string& name) const;
  void freeze() { is_frozen_ = true; }
  [[nodiscard]] const Bucket& bucket(int64_t started) const {
    return *buckets_[static_cast<size_t>(started) % buckets_.size()];
  }
  // The plan ended when `end` buckets had been started everywhere. What has to be negotiated after all, in
  // the order it was submitted. Buckets this rank has started beyond the end must be cancelled. Not ok: the
  // plan cannot have ended there.
  Result<std::vector<LeftOver>> finish(int64_t end);

 private:
  struct Slot {
    size_t bucket = 0;
    size_t entry = 0;
    uint64_t accepted = 0;  // 0: not waiting; else when, in order of submission
    LeftOver last = {};     // what was accepted last
  };
  [[nodiscard]] size_t head() const { return static_cast<size_t>(started_) % buckets_.size(); }

  bool is_active_ = false, is_frozen_ = false;
  int64_t plan_number_ = 0;
  int64_t started_ = 0;  // buckets, all rounds
  uint64_t clock_ = 0;
  size_t waiting_ = 0;
  std::vector<SharedBucket> buckets_;
  std::vector<size_t> ready_;  // [bucket] tensors that are waiting
  std::unordered_map<std::string, Slot> slots_;
};

}  // namespace rueda::control
