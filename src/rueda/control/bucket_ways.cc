#include "rueda/control/bucket_ways.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string_view>
#include <utility>

#include "rueda/control/ready_order.h"

namespace rueda::control {
namespace {

constexpr size_t kMostTensors = 2048;  // of a step whose buckets are computed
constexpr int kFar = 4;                // a look beyond the neighbours: sixteen times the size
constexpr int kMostSteps = 6;          // away from the size and the costs of a call at the beginning
constexpr int kMostChunkSteps = 2;     // each way: a sixteenth to sixteen times the size
constexpr int64_t kLeastAlone = 4 << 10, kMostAlone = int64_t{1} << 30;
// Cost models err: what they say of flows that meet in a switch is up to 2.2 times what a good switch takes.
constexpr double kMostDearer = 2.5;
constexpr double kLeastShare =
    0.1;  // of what a step's buckets take: what changes less gains nothing to speak of

std::string size_text(int64_t bytes) {
  return bytes >= 1 << 20 ? std::to_string(bytes >> 20) + " MiB" : std::to_string(bytes >> 10) + " KiB";
}

int64_t bytes_of(const Bucket& bucket) {
  return elements_of(bucket) * static_cast<int64_t>(size_of(bucket.dtype));
}

int64_t scaled(int64_t bytes, int exponent) { return exponent > 0 ? bytes << exponent : bytes >> -exponent; }

}  // namespace

void BucketWays::set_step(std::vector<SeenTensor> step, const SetMembers& sets) {
  step_ = std::move(step);
  sets_ = sets;
  copies_ = std::ranges::any_of(step_, [this](const SeenTensor& tensor) {
    return limits_.traits_of(tensor.bucket.process_set, tensor.bucket).alone_bytes > 0;
  });
}

std::vector<Bucket> BucketWays::buckets_of(const BucketWay& way) const {
  std::vector<SeenTensor> sorted;
  if (way.is_by_ready) sorted = in_order_of_readiness(step_);
  const std::vector<SeenTensor>& step = way.is_by_ready ? sorted : step_;
  BucketLimits limits = sizes_of(way);
  limits.alone_bytes = way.alone_bytes;
  if (way.is_computed) limits.begins = best_buckets(ready_of(step, way.alone_bytes), costs_of(way)).begins;
  std::vector<Bucket> buckets = in_buckets(step, sets_, limits);
  if (way.algorithm != 0 || way.chunk != 0)
    for (Bucket& bucket : buckets) bucket.tuning = tuning_of(way, bucket);
  return buckets;
}

BucketLimits BucketWays::sizes_of(const BucketWay& way) const {
  BucketLimits limits = limits_;
  const int64_t most = options_.costs.most_bytes;
  if (way.is_computed) {
    limits.bucket_bytes = most;
  } else if (way.exponent != 0) {
    const auto size = [exponent = way.exponent, most](int64_t bytes) {
      return std::min(scaled(bytes, exponent), most);
    };
    limits.bucket_bytes = size(limits.bucket_bytes);
    limits.traits_of = [size, traits_of = limits_.traits_of](int32_t set, const Terms& terms) {
      BackendTraits traits = traits_of(set, terms);
      traits.bucket_bytes = size(traits.bucket_bytes);
      return traits;
    };
  }
  return limits;
}

// A tensor that travels alone begins a bucket, and so does the one behind it.
std::vector<ReadyTensor> BucketWays::ready_of(const std::vector<SeenTensor>& step,
                                              int64_t alone_bytes) const {
  const std::vector<size_t> firsts = reach(step);
  std::vector<ReadyTensor> ready;
  size_t least = 0;
  for (size_t i = 0; i < step.size(); ++i) {
    const bool is_alone = alone_bytes > 0 && step[i].bytes >= alone_bytes;
    if (is_alone) least = i;
    ready.push_back({.ready = step[i].ready - step[0].ready,
                     .bytes = step[i].bytes,
                     .first = std::max(firsts[i], least)});
    if (is_alone) least = i + 1;
  }
  return ready;
}

BucketCosts BucketWays::costs_of(const BucketWay& way) const {
  BucketCosts costs = options_.costs;
  const double more = (std::pow(4.0, way.exponent) - 1) * costs.call_us(4);
  costs.call_us = [more, call_us = options_.costs.call_us](int64_t bytes) { return call_us(bytes) + more; };
  return costs;
}

CallTuning BucketWays::tuning_of(const BucketWay& way, const Bucket& bucket) const {
  CallTuning tuning;
  if (bucket.what != Collective::kAllreduce || !limits_.traits_of(bucket.process_set, bucket).obeys_tuning)
    return tuning;
  if (way.chunk != 0) tuning.chunk_bytes = chunk_of(way);
  if (way.algorithm == 0) return tuning;
  const OtherAlgorithm& other = options_.algorithms[static_cast<size_t>(way.algorithm) - 1];
  if (is_worth_trying(other, bytes_of(bucket))) tuning.algorithm = other.number;
  return tuning;
}

// One that costs the same is the one that the cost model chooses.
bool BucketWays::is_worth_trying(const OtherAlgorithm& other, int64_t bytes) const {
  const double us = other.call_us(bytes), chosen_us = options_.costs.call_us(bytes);
  return us > chosen_us && us <= kMostDearer * chosen_us;
}

int64_t BucketWays::chunk_of(const BucketWay& way) const {
  return scaled(options_.chunk_bytes, 2 * way.chunk);
}

std::vector<BucketWay> BucketWays::next_to(const BucketWay& way, std::span<const Bucket> buckets) const {
  std::vector<BucketWay> ways;
  if (!way.is_computed && step_.size() <= kMostTensors) {
    ways.push_back(way);
    ways.back().is_computed = true;
    ways.back().exponent = 0;
  }
  add_chunks(way, buckets, ways);
  add_algorithms(way, buckets, ways);
  if (!way.is_by_ready) {
    ways.push_back(way);
    ways.back().is_by_ready = true;
  }
  if (copies_) add_alone(way, ways);
  add_sizes(way, ways);
  return ways;
}

// A call that is no larger than a chunk is one chunk, whatever its size.
void BucketWays::add_chunks(const BucketWay& way, std::span<const Bucket> buckets,
                            std::vector<BucketWay>& ways) const {
  int64_t largest = 0;
  for (const Bucket& bucket : buckets) largest = std::max(largest, bytes_of(bucket));
  for (const int direction : {1, -1}) {
    if (options_.chunk_bytes == 0 || std::abs(way.chunk + direction) > kMostChunkSteps) continue;
    BucketWay other = way;
    other.chunk += direction;
    const int64_t bytes = chunk_of(other);
    const bool is_other = std::min(bytes, chunk_of(way)) < largest;
    if (is_other && bytes >= kLeastChunkBytes && bytes <= kMostChunkBytes) ways.push_back(other);
  }
}

// Those that are predicted to take the least for these buckets come first; none that would run little of
// them.
void BucketWays::add_algorithms(const BucketWay& way, std::span<const Bucket> buckets,
                                std::vector<BucketWay>& ways) const {
  std::vector<std::pair<double, int>> by_cost;
  for (size_t i = 0; i < options_.algorithms.size(); ++i) {
    double us = 0, changed_us = 0;
    for (const Bucket& bucket : buckets) {
      const int64_t bytes = bytes_of(bucket);
      const OtherAlgorithm& other = options_.algorithms[i];
      const bool is_changed = is_worth_trying(other, bytes);
      const double bucket_us = is_changed ? other.call_us(bytes) : options_.costs.call_us(bytes);
      us += bucket_us;
      changed_us += is_changed ? bucket_us : 0;
    }
    if (changed_us < kLeastShare * us) continue;
    by_cost.emplace_back(us, static_cast<int>(i) + 1);
  }
  std::ranges::sort(by_cost);
  if (way.algorithm != 0) by_cost.insert(by_cost.begin(), {0, 0});
  for (const auto& [us, algorithm] : by_cost) {
    if (algorithm == way.algorithm) continue;
    ways.push_back(way);
    ways.back().algorithm = algorithm;
  }
}

void BucketWays::add_sizes(const BucketWay& way, std::vector<BucketWay>& ways) const {
  const auto add = [&](int exponent) {
    if (std::abs(exponent) > kMostSteps) return;
    if (!way.is_computed && limits_.bucket_bytes >> std::max(0, -exponent) == 0) return;
    ways.push_back(way);
    ways.back().exponent = exponent;
  };
  add(way.exponent + 1);
  add(way.exponent - 1);
  if (!way.is_computed && way.exponent == 0) add(kFar);
}

// First the size from which on a copy takes as long as what a call of its own costs; but one that is fused as
// it is.
void BucketWays::add_alone(const BucketWay& way, std::vector<BucketWay>& ways) const {
  const BucketCosts& costs = options_.costs;
  const auto add = [&](int64_t bytes) {
    if (bytes < kLeastAlone || bytes > kMostAlone) return;
    ways.push_back(way);
    ways.back().alone_bytes = bytes;
  };
  if (way.alone_bytes > 0) {
    add(2 * way.alone_bytes);
    add(way.alone_bytes / 2);
  } else if (costs.packing_ns > 0) {
    const double most =
        static_cast<double>(std::clamp(sizes_of(way).bucket_bytes / 2, kLeastAlone, kMostAlone));
    const double bytes = std::min(costs.call_us(4) * 1e3 / costs.packing_ns, most);
    add(static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::max(bytes, double{kLeastAlone})))));
  }
}

bool BucketWays::are_alike(std::span<const Bucket> some, std::span<const Bucket> others) {
  const auto names_of = [](const Bucket& bucket) {
    std::vector<std::string_view> names;
    for (const Entry& entry : bucket.entries) names.push_back(entry.name);
    std::ranges::sort(names);
    return names;
  };
  return std::ranges::equal(some, others, [&](const Bucket& one, const Bucket& other) {
    return one.tuning == other.tuning && one.entries.size() == other.entries.size() &&
           names_of(one) == names_of(other);
  });
}

int64_t BucketWays::step_bytes() const {
  int64_t bytes = 0;
  for (const SeenTensor& tensor : step_) bytes += tensor.bytes;
  return bytes;
}

int64_t BucketWays::fused_bytes_of(const BucketWay& way, std::span<const Bucket> buckets) const {
  if (!way.is_computed) return sizes_of(way).bucket_bytes;
  int64_t largest = 0;
  for (const Bucket& bucket : buckets)
    if (bucket.entries.size() > 1) largest = std::max(largest, bytes_of(bucket));
  return largest;
}

std::string BucketWays::text_of(const BucketWay& way) const {
  std::string text;
  if (!way.is_computed) {
    text = "buckets up to " + size_text(sizes_of(way).bucket_bytes);
  } else if (way.exponent == 0) {
    text = "computed buckets, a call as it is predicted";
  } else {
    const std::string factor = std::to_string(1 << (2 * std::abs(way.exponent)));
    text = "computed buckets, a call " + factor + (way.exponent > 0 ? " times as dear" : " times as cheap");
  }
  if (way.algorithm != 0) text += "; " + options_.algorithms[static_cast<size_t>(way.algorithm) - 1].name;
  if (way.is_by_ready) text += "; in the order in which tensors were ready";
  if (way.alone_bytes > 0) text += "; tensors from " + size_text(way.alone_bytes) + " on alone";
  if (way.chunk != 0) text += "; chunks of " + size_text(chunk_of(way));
  return text;
}

}  // namespace rueda::control
