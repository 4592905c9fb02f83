#include "rueda/control/bucketing.h"

#include <algorithm>
#include <utility>

#include "rueda/control/fusion.h"
#include "rueda/control/row_counts.h"

namespace rueda::control {
namespace {

constexpr double kFarSmaller = 20;  // times, than the mean tensor

bool are_allreduces(const Bucket& a, const Bucket& b) {
  return a.what == Collective::kAllreduce && b.what == Collective::kAllreduce;
}

class StepPacker {
 public:
  StepPacker(const SetMembers& sets, const BucketLimits& limits) : sets_(sets), limits_(limits) {}

  // The order of buckets that have no rank in common does not matter. So a tensor may join the last bucket
  // that has ranks in common with it, as if it were the very last.
  void put(const SeenTensor& tensor, size_t place) {
    const int32_t set = tensor.bucket.process_set;
    auto last = open_.end();
    while (last != open_.begin() && !overlap(sets_, (last - 1)->bucket.process_set, set)) --last;
    const bool is_alone = last == open_.begin() || (last - 1)->bucket.process_set != set;
    if (!is_alone) {
      Open& open = *(last - 1);
      const bool fits = fits_in(open, tensor, place);
      // The tensor was submitted before the bucket ran, so it does not depend on a result of the bucket.
      const bool is_free = tensor.seen < open.started;
      if (fits && is_free && can_fuse(open.bucket, tensor.bucket)) {
        open.bucket.entries.push_back(tensor.entry());
        open.bytes += tensor.bytes;
        open.started = std::min(open.started, tensor.started);
        return;
      }
      // A large tensor overtakes a bucket that is still small. Without this, the bias between two weights
      // would be a bucket of its own, and would take the place beside a weight at which the next weight can
      // overlap. Nothing overtakes a barrier.
      const bool is_small = limits_.begins.empty() && open.bytes < most_bytes(open.bucket) / 2;
      if (!fits && is_free && is_small && are_allreduces(open.bucket, tensor.bucket)) {
        open_.insert(last - 1, {.bucket = tensor.bucket});
        return;
      }
    }
    open_.push_back({.bucket = tensor.bucket,
                     .bytes = tensor.bytes,
                     .started = tensor.started,
                     .is_full = is_large(tensor)});
  }

  std::vector<Bucket> take() && {
    std::vector<Bucket> buckets;
    for (Open& one : open_) buckets.push_back(std::move(one.bucket));
    return buckets;
  }

 private:
  // A bucket that may still grow.
  struct Open {
    Bucket bucket;
    int64_t bytes = 0;
    uint64_t started = 0;  // when the first of its tensors was answered
    bool is_full = false;
  };

  [[nodiscard]] int64_t most_bytes(const Bucket& bucket) const {
    const int64_t own = limits_.traits_of(bucket.process_set, bucket).bucket_bytes;
    return own > 0 ? own : limits_.bucket_bytes;
  }

  [[nodiscard]] bool is_large(const SeenTensor& tensor) const {
    return limits_.alone_bytes > 0 && tensor.bytes >= limits_.alone_bytes;
  }

  [[nodiscard]] bool fits_in(const Open& open, const SeenTensor& tensor, size_t place) const {
    if (open.is_full || is_large(tensor)) return false;
    if (!limits_.begins.empty() && limits_.begins[place]) return false;
    const int64_t most = limits_.begins.empty() ? most_bytes(tensor.bucket) : limits_.bucket_bytes;
    return tensor.bytes <= most - std::min(open.bytes, most);
  }

  const SetMembers& sets_;
  const BucketLimits& limits_;
  std::vector<Open> open_;
};

}  // namespace

bool can_fuse(const Bucket& a, const Bucket& b) {
  return is_fusible(a.what) && a.process_set == b.process_set && key_of(a) == key_of(b) &&
         has_varying_rows(a) == has_varying_rows(b);
}

int64_t elements_of(const Bucket& bucket) {
  int64_t sum = 0;
  for (const Entry& entry : bucket.entries) {
    int64_t count = 1;
    for (const int64_t length : entry.shape) count *= length;
    sum += count;
  }
  return sum;
}

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

std::vector<bool> large_tensors(std::span<const Bucket> plan) {
  std::vector<double> bytes;
  double sum = 0;
  for (const Bucket& bucket : plan)
    for (const Entry& entry : bucket.entries)
      sum += bytes.emplace_back(static_cast<double>(bytes_of(bucket, entry)));
  std::vector<bool> are_large;
  for (const double size : bytes)
    are_large.push_back(kFarSmaller * size * static_cast<double>(bytes.size()) >= sum);
  return are_large;
}

std::vector<Bucket> in_buckets(const std::vector<SeenTensor>& step, const SetMembers& sets,
                               const BucketLimits& limits) {
  StepPacker packer(sets, limits);
  for (size_t place = 0; place < step.size(); ++place) packer.put(step[place], place);
  return std::move(packer).take();
}

std::vector<size_t> reach(const std::vector<SeenTensor>& step) {
  std::vector<size_t> first(step.size());
  for (size_t last = 0; last < step.size(); ++last) {
    first[last] = last;
    if (last == 0 || !can_fuse(step[last - 1].bucket, step[last].bucket)) continue;
    size_t begin = first[last - 1];
    for (size_t other = begin; other < last; ++other)
      if (step[last].seen >= step[other].started) begin = other + 1;
    first[last] = begin;
  }
  return first;
}

}  // namespace rueda::control
