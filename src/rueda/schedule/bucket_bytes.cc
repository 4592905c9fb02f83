#include "rueda/schedule/bucket_bytes.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "rueda/schedule/algorithm.h"

namespace rueda::schedule {

namespace {

constexpr int64_t kLeastBucket = 1 << 20;

Spec allreduce_of(int64_t bytes) {
  return {.count = bytes / 4, .counts = {}, .scale = {}, .segment_counts = {}};
}

// The predicted time of an allreduce of float32; 0 if none can run.
double allreduce_us(int64_t bytes, const Topology& topology, std::string_view forced) {
  const auto choice = choose(allreduce_of(bytes), topology, forced);
  return choice.is_ok() ? choice.value().cost_us : 0.0;
}

}  // namespace

std::function<double(int64_t bytes)> bucket_cost(Topology topology, std::string forced) {
  return [topology = std::move(topology), forced = std::move(forced)](int64_t bytes) {
    return kEngineUs + allreduce_us(std::max<int64_t>(bytes, 4), topology, forced);
  };
}

std::vector<BucketAlgorithm> bucket_algorithms(const Topology& topology) {
  std::vector<BucketAlgorithm> found;
  for (size_t i = 0; i < algorithms().size(); ++i) {
    const Algorithm& algorithm = algorithms()[i];
    if (algorithm.what != Collective::kAllreduce || algorithm.is_encoded ||
        !is_order_preserving(algorithm, topology) || !algorithm.cost_us(allreduce_of(kLeastBucket), topology))
      continue;
    found.push_back({.number = static_cast<uint8_t>(i + 1),
                     .name = std::string(algorithm.name),
                     .call_us = [topology, cost_us = algorithm.cost_us](int64_t bytes) {
                       const auto us = cost_us(allreduce_of(std::max<int64_t>(bytes, 4)), topology);
                       return us ? kEngineUs + *us : std::numeric_limits<double>::infinity();
                     }});
  }
  return found;
}

int64_t plan_bucket_bytes(const Topology& topology, std::string_view forced) {
  // Starting a bucket of 1 MiB costs nothing beside reducing it in memory (about 100 us).
  constexpr int64_t kMost = 16 << 20;
  constexpr double kLatencyShare = 0.2;  // of the time of a bucket; the bucket beside it uses the network
  if (topology.is_single_host()) return kLeastBucket;
  const auto cost_us = [&](int64_t bytes) { return allreduce_us(bytes, topology, forced); };
  int64_t bytes = kLeastBucket;
  double once = cost_us(bytes);
  while (bytes < kMost) {
    const double twice = cost_us(2 * bytes);
    const double latency = 2 * once - twice;  // what does not grow with the size
    if (latency <= kLatencyShare * once) break;
    bytes *= 2;
    once = twice;
  }
  return bytes;
}

}  // namespace rueda::schedule
