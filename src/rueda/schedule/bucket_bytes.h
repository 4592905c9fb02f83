// How large the buckets of a learned plan are to become where no user has said it. Pure; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "rueda/schedule/topology.h"

namespace rueda::schedule {

// What a bucket costs beside its transfer. Of the engine for its call, which the models of wires leave out:
inline constexpr double kEngineUs = 30;
// Of each byte that is copied into the buffer of a bucket and out of it again, each time at some 6 GB/s of
// one core:
inline constexpr double kPackingNs = 0.35;
// Microseconds of a bucket of so many bytes of float32 between hosts, as predicted. forced: as in choose().
std::function<double(int64_t bytes)> bucket_cost(Topology topology, std::string forced);

// The allreduces that add in the order of this topology (algorithm.h), with what a bucket costs by each;
// infinity: it cannot run one of that size.
struct BucketAlgorithm {
  uint8_t number = 0;  // in algorithms(), counted from 1
  std::string name;
  std::function<double(int64_t bytes)> call_us;
};
std::vector<BucketAlgorithm> bucket_algorithms(const Topology& topology);

// 1 MiB on one host, where starting a bucket costs little. Between hosts it doubles, up to 16 MiB, until
// latency is at most a fifth of the time of a bucket. forced: as in choose().
int64_t plan_bucket_bytes(const Topology& topology, std::string_view forced);

}  // namespace rueda::schedule
