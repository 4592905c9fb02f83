#include "rueda/control/plan_learner.h"

#include <algorithm>

#include "rueda/control/fusion.h"
#include "rueda/control/numbered_name.h"

namespace rueda::control {
namespace {

constexpr size_t kMaxStep = 1 << 14;     // tensors; a longer step is assumed never to end
constexpr size_t kMaxRows = 1 << 22;     // in its tensors; an alltoall has as many as the square of the ranks
constexpr size_t kMaxWatched = 1 << 16;  // names that are submitted and have not run
constexpr int kMaxRepeats = 64;          // most repeats asked for before the next plan
constexpr size_t kManyNumbered = 32;     // names, see has_no_plain_names()
constexpr int64_t kManyTimes = 32;       // passes after which a plan has paid

bool is_plannable(const Bucket& bucket) {
  const bool is_adasum = bucket.what == Collective::kAllreduce && bucket.op == ReduceOp::kAdasum;
  return !is_adasum && bucket.process_set == 0 && bucket.joined.empty();
}

// Of its share of a fused transfer, as in respond.cc; INT64_MAX if that is too large for a number.
int64_t bytes_of(const Bucket& bucket, const Entry& entry) {
  auto bytes = static_cast<int64_t>(size_of(bucket.dtype));
  int64_t rows = 0;  // of an allgather, which takes those of all ranks
  for (const int64_t of_rank : entry.rows)
    if (__builtin_add_overflow(rows, of_rank, &rows)) return INT64_MAX;
  for (size_t dim = 0; dim < entry.shape.size(); ++dim) {
    const bool is_gathered = bucket.what == Collective::kAllgather && dim == 0;
    if (__builtin_mul_overflow(bytes, is_gathered ? rows : entry.shape[dim], &bytes)) return INT64_MAX;
  }
  return bytes;
}

bool are_allreduces(const Bucket& a, const Bucket& b) {
  return a.what == Collective::kAllreduce && b.what == Collective::kAllreduce;
}

bool can_fuse(const Bucket& a, const Bucket& b) { return is_fusible(a.what) && key_of(a) == key_of(b); }

SeenTensor alone(const Bucket& bucket, const Entry& entry) {
  SeenTensor tensor;
  static_cast<Terms&>(tensor.bucket) = bucket;
  tensor.bucket.process_set = bucket.process_set;
  tensor.bucket.root = bucket.root;
  tensor.bucket.entries = {entry};
  tensor.bytes = bytes_of(bucket, entry);
  if (const auto name = split_name(entry.name, entry.numbered_at)) tensor.number = name->number;
  return tensor;
}

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
    SeenTensor tensor = alone(*bucket, entry);
    const auto seen = first_seen_.find(entry.name);
    tensor.seen = seen != first_seen_.end() ? seen->second : started;
    tensor.started = started;
    if (seen != first_seen_.end()) first_seen_.erase(seen);
    saw_tensor(std::move(tensor));
  }
}

// A name ends the step when it recurs. The n-th of the names that differ in their number alone is compared
// with the n-th of the last step.
void PlanLearner::saw_tensor(SeenTensor tensor) {
  std::string key = tensor.entry().name;
  if (const auto name = split_name(key, tensor.entry().numbered_at)) {
    history_.add(tensor);
    std::string series;
    name->put_key(series);
    key = series + '\0' + std::to_string(++numbered_[series]);
  } else {
    history_.clear();
    if (in_step_.contains(key)) end_step();
    ++plain_;
  }
  rows_ += tensor.entry().rows.size();
  if (step_.size() >= kMaxStep || rows_ >= kMaxRows) return forget();
  in_step_.emplace(std::move(key), step_.size());
  step_.push_back(std::move(tensor));
}

// The same tensors in any order, because the order varies with the timing of the ranks.
std::optional<int64_t> PlanLearner::stride_since_last_step() const {
  if (step_.size() != last_step_.size()) return std::nullopt;
  int64_t stride = 0;
  for (const auto& [key, at] : in_step_) {
    const auto before = in_last_step_.find(key);
    if (before == in_last_step_.end() || !recurs_as(last_step_[before->second], step_[at]))
      return std::nullopt;
    if (step_[at].entry().numbered_at == 0) continue;
    const int64_t grown = step_[at].number - last_step_[before->second].number;
    if (grown < 1 || (stride != 0 && grown != stride)) return std::nullopt;
    stride = grown;
  }
  return stride;
}

void PlanLearner::end_step() {
  const std::optional<int64_t> stride = stride_since_last_step();
  const bool is_as_before = stride && (repeats_ == 0 || *stride == last_stride_);
  repeats_ = is_as_before ? repeats_ + 1 : stride ? 1 : 0;
  last_stride_ = stride.value_or(0);
  last_step_ = std::exchange(step_, {});
  in_last_step_ = std::exchange(in_step_, {});
  numbered_.clear();
  plain_ = rows_ = 0;
}

int64_t PlanLearner::most_bytes(const Bucket& bucket) const {
  const int64_t own = traits_of_(bucket.process_set, bucket).bucket_bytes;
  return own > 0 ? own : bucket_bytes_;
}

// Names without a number that came once, before the first step, are no part of the steps.
bool PlanLearner::has_no_plain_names() const {
  return plain_ == 0 || history_.size() > kManyNumbered + 4 * plain_;
}

// Only at the end of a step, because a plan begins with its first bucket.
std::optional<std::vector<SeenTensor>> PlanLearner::take_step() {
  std::vector<SeenTensor> step;
  int64_t stride = 0;
  if (const auto period = has_no_plain_names() ? history_.period(repeats_needed_) : std::nullopt) {
    step = history_.last(period->calls);
    stride = period->stride;
  } else {
    if (step_.empty() || repeats_ + 1 < repeats_needed_) return std::nullopt;
    const std::optional<int64_t> since = stride_since_last_step();
    if (!since || *since != last_stride_) return std::nullopt;
    step = std::move(step_);
    stride = *since;
  }
  for (SeenTensor& tensor : step)
    if (tensor.entry().numbered_at != 0) tensor.bucket.entries.front().stride = stride;
  return step;
}

std::optional<std::vector<Bucket>> PlanLearner::take_plan() {
  std::optional<std::vector<SeenTensor>> step = take_step();
  if (!step) return std::nullopt;
  std::vector<Bucket> buckets = in_buckets(std::move(*step));
  forget();
  planned_ = std::ssize(buckets);
  return buckets;
}

std::vector<Bucket> PlanLearner::in_buckets(std::vector<SeenTensor> step) const {
  std::vector<Bucket> buckets;
  int64_t bytes = 0;     // of the last bucket, which may still grow
  uint64_t started = 0;  // when its first tensor was
  for (SeenTensor& tensor : step) {
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
    if (!fits && is_free && is_small && are_allreduces(buckets.back(), tensor.bucket)) {
      buckets.insert(buckets.end() - 1, std::move(tensor.bucket));
      continue;
    }
    bytes = tensor.bytes;
    started = tensor.started;
    buckets.push_back(std::move(tensor.bucket));
  }
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
  in_last_step_.clear();
  numbered_.clear();
  plain_ = rows_ = 0;
  history_.clear();
}

}  // namespace rueda::control
