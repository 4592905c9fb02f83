#include "rueda/control/plan_learner.h"

#include <algorithm>
#include <cstdlib>

#include "rueda/control/fusion.h"
#include "rueda/control/numbered_name.h"

namespace rueda::control {
namespace {

constexpr size_t kMaxWatched = 1 << 16;  // names that are submitted and have not run
constexpr size_t kMaxBuckets = 1 << 14;  // of a plan
constexpr int kMaxRepeats = 64;          // most repeats asked for before the next plan
constexpr int64_t kManyTimes = 32;       // passes after which a plan has paid
constexpr size_t kFewTensors = 8;        // of one layer
constexpr size_t kMostProof = 1 << 12;   // calls

bool is_plannable(const Bucket& bucket) {
  const bool is_adasum = bucket.what == Collective::kAllreduce && bucket.op == ReduceOp::kAdasum;
  return !is_adasum && bucket.joined.empty();
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

bool can_fuse(const Bucket& a, const Bucket& b) {
  return is_fusible(a.what) && a.process_set == b.process_set && key_of(a) == key_of(b);
}

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
  first_seen_.try_emplace({.process_set = request.process_set, .name = request.name}, ++clock_);
}

void PlanLearner::saw_response(const Response& response) {
  const auto* bucket = std::get_if<Bucket>(&response);
  if (bucket == nullptr || !is_plannable(*bucket)) return forget();
  is_news_ = true;
  const uint64_t started = ++clock_;
  for (const Entry& entry : bucket->entries) {
    SeenTensor tensor = alone(*bucket, entry);
    const auto seen = first_seen_.find({.process_set = bucket->process_set, .name = entry.name});
    tensor.seen = seen != first_seen_.end() ? seen->second : started;
    tensor.started = started;
    if (seen != first_seen_.end()) first_seen_.erase(seen);
    history_.add(std::move(tensor));
  }
}

int64_t PlanLearner::most_bytes(const Bucket& bucket) const {
  const int64_t own = traits_of_(bucket.process_set, bucket).bucket_bytes;
  return own > 0 ? own : bucket_bytes_;
}

std::optional<std::vector<Bucket>> PlanLearner::take_plan(const SetMembers& sets) {
  if (!std::exchange(is_news_, false)) return std::nullopt;
  std::optional<std::vector<SeenTensor>> step = history_.last_step(needed_, sets);
  if (!step) return std::nullopt;
  planned_ = step->size();
  std::vector<Bucket> buckets = in_buckets(std::move(*step), sets);
  forget();
  if (buckets.size() > kMaxBuckets) return std::nullopt;
  return buckets;
}

std::vector<Bucket> PlanLearner::in_buckets(std::vector<SeenTensor> step, const SetMembers& sets) const {
  std::vector<Open> open;
  for (SeenTensor& tensor : step) put(std::move(tensor), sets, open);
  std::vector<Bucket> buckets;
  for (Open& one : open) buckets.push_back(std::move(one.bucket));
  return buckets;
}

// The order of buckets that have no rank in common does not matter. So a tensor may join the last bucket that
// has ranks in common with it, as if it were the very last.
void PlanLearner::put(SeenTensor tensor, const SetMembers& sets, std::vector<Open>& buckets) const {
  const int32_t set = tensor.bucket.process_set;
  auto last = buckets.end();
  while (last != buckets.begin() && !overlap(sets, (last - 1)->bucket.process_set, set)) --last;
  const bool is_alone = last == buckets.begin() || (last - 1)->bucket.process_set != set;
  if (!is_alone) {
    Open& open = *(last - 1);
    const int64_t most = most_bytes(tensor.bucket);
    const bool fits = tensor.bytes <= most - std::min(open.bytes, most);
    // The tensor was submitted before the bucket ran, so it does not depend on a result of the bucket.
    const bool is_free = tensor.seen < open.started;
    if (fits && is_free && can_fuse(open.bucket, tensor.bucket)) {
      open.bucket.entries.push_back(std::move(tensor.bucket.entries[0]));
      open.bytes += tensor.bytes;
      return;
    }
    // A large tensor overtakes a bucket that is still small. Without this, the bias between two weights would
    // be a bucket of its own, and would take the place beside a weight at which the next weight can overlap.
    // Nothing overtakes a barrier.
    const bool is_small = open.bytes < most_bytes(open.bucket) / 2;
    if (!fits && is_free && is_small && are_allreduces(open.bucket, tensor.bucket)) {
      buckets.insert(last - 1, {.bucket = std::move(tensor.bucket)});
      return;
    }
  }
  buckets.push_back({.bucket = std::move(tensor.bucket), .bytes = tensor.bytes, .started = tensor.started});
}

// Equal layers are taken for short steps. If such a plan lasts long enough to pay, but ends after as many
// passes as the last one, the next one must be proven by more calls than there are layers.
void PlanLearner::plan_ended(int64_t passes) {
  const bool has_paid = passes >= kManyTimes;
  const bool is_as_before = std::abs(passes - last_passes_) <= 2;
  const bool is_of_layers = has_paid && is_as_before && planned_ <= kFewTensors;
  needed_.repeats = has_paid ? kLeastRepeats : std::min(2 * needed_.repeats, kMaxRepeats);
  needed_.calls = is_of_layers ? std::min(2 * planned_ * static_cast<size_t>(passes), kMostProof) : 0;
  last_passes_ = passes;
  forget();
}

void PlanLearner::forget() {
  first_seen_.clear();
  history_.clear();
}

}  // namespace rueda::control
