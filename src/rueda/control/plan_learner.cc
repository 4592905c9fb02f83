#include <algorithm>

#include "rueda/control/plans.h"

namespace rueda::control {
namespace {

constexpr size_t kMaxStep = 1 << 14;     // tensors; a longer step is assumed never to end
constexpr size_t kMaxWatched = 1 << 16;  // names that are submitted and have not run
constexpr int kMaxRepeats = 64;          // most repeats asked for before the next plan
constexpr int64_t kManyTimes = 32;       // passes after which a plan has paid

bool is_plannable(const Bucket& bucket) {
  const bool is_reduction = bucket.what == Collective::kAllreduce && bucket.op != ReduceOp::kAdasum;
  return (is_reduction || bucket.what == Collective::kBarrier) && bucket.process_set == 0 &&
         bucket.joined.empty();
}

int64_t bytes_of(const Bucket& bucket, const Entry& entry) {
  auto bytes = static_cast<int64_t>(size_of(bucket.dtype));
  for (const int64_t dim : entry.shape)
    if (__builtin_mul_overflow(bytes, dim, &bytes)) return INT64_MAX;
  return bytes;
}

bool are_reductions(const Bucket& a, const Bucket& b) {
  return a.what == Collective::kAllreduce && b.what == Collective::kAllreduce;
}

bool can_fuse(const Bucket& a, const Bucket& b) { return are_reductions(a, b) && key_of(a) == key_of(b); }

}  // namespace

void PlanLearner::saw_submission(const TensorRequest& request) {
  if (request.priority != 0) return forget();  // what is ready decides the order, so none is fixed
  if (request.shares_memory) return forget();  // whether it does depends on what has ended
  if (first_seen_.size() >= kMaxWatched) forget();
  first_seen_.try_emplace(request.name, ++clock_);
}

void PlanLearner::saw_response(const Response& response) {
  const auto* bucket = std::get_if<Bucket>(&response);
  if (bucket == nullptr || !is_plannable(*bucket)) return forget();
  const uint64_t started = ++clock_;
  for (const Entry& entry : bucket->entries) {
    if (in_step_.contains(entry.name)) end_step();
    if (step_.size() >= kMaxStep) return forget();
    Tensor tensor;
    tensor.bucket = *bucket;
    tensor.bucket.entries = {entry};
    tensor.bytes = bytes_of(*bucket, entry);
    const auto seen = first_seen_.find(entry.name);
    tensor.seen = seen != first_seen_.end() ? seen->second : started;
    tensor.started = started;
    if (seen != first_seen_.end()) first_seen_.erase(seen);
    in_step_.emplace(entry.name, step_.size());
    step_.push_back(std::move(tensor));
  }
}

// The same tensors in any order, because the order varies with the timing of the ranks.
bool PlanLearner::is_like_last_step() const {
  if (step_.size() != last_step_.size()) return false;
  return std::ranges::all_of(last_step_, [&](const Tensor& tensor) {
    const auto found = in_step_.find(tensor.bucket.entries[0].name);
    return found != in_step_.end() && step_[found->second].bucket == tensor.bucket;
  });
}

void PlanLearner::end_step() {
  repeats_ = is_like_last_step() ? repeats_ + 1 : 0;
  last_step_ = std::exchange(step_, {});
  in_step_.clear();
}

int64_t PlanLearner::most_bytes(const Bucket& bucket) const {
  const int64_t own = traits_of_(bucket.process_set, bucket).bucket_bytes;
  return own > 0 ? own : bucket_bytes_;
}

std::optional<std::vector<Bucket>> PlanLearner::take_plan() {
  // Only at the end of a step, because a plan begins with its first bucket.
  if (step_.empty() || repeats_ + 1 < repeats_needed_ || !is_like_last_step()) return std::nullopt;
  std::vector<Bucket> buckets;
  int64_t bytes = 0;     // of the last bucket, which may still grow
  uint64_t started = 0;  // when its first tensor was
  for (Tensor& tensor : step_) {
    const int64_t most = most_bytes(tensor.bucket);
    const bool fits = !buckets.empty() && tensor.bytes <= most - std::min(bytes, most);
    // The tensor was submitted before the bucket ran, so it does not depend on a result of the bucket.
    const bool is_free = tensor.seen < started;
    if (fits && is_free && can_fuse(buckets.back(), tensor.bucket)) {
      buckets.back().entries.push_back(std::move(tensor.bucket.entries[0]));
      bytes += tensor.bytes;
      continue;
    }
    // A large tensor overtakes a bucket that is still small. Without this, the bias between two weights would
    // be a bucket of its own, and would take the place beside a weight at which the next weight can overlap.
    // Nothing overtakes a barrier.
    const bool is_small = !buckets.empty() && bytes < most_bytes(buckets.back()) / 2;
    if (!fits && is_free && is_small && are_reductions(buckets.back(), tensor.bucket)) {
      buckets.insert(buckets.end() - 1, std::move(tensor.bucket));
      continue;
    }
    bytes = tensor.bytes;
    started = tensor.started;
    buckets.push_back(std::move(tensor.bucket));
  }
  forget();
  planned_ = std::ssize(buckets);
  return buckets;
}

void PlanLearner::plan_ended(int64_t buckets) {
  const bool has_paid = buckets >= kManyTimes * planned_;
  repeats_needed_ = has_paid ? kLeastRepeats : std::min(2 * repeats_needed_, kMaxRepeats);
  forget();
}

void PlanLearner::forget() {
  repeats_ = 0;
  first_seen_.clear();
  step_.clear();
  last_step_.clear();
  in_step_.clear();
}

}  // namespace rueda::control
