// How large the buckets of a learned plan are to become where no user has said it. Pure; any thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "rueda/schedule/topology.h"

namespace rueda::schedule {

// The predicted time of an allreduce of float32, in microseconds; 0 if none can run. forced: as in choose().
double allreduce_us(int64_t bytes, const Topology& topology, std::string_view forced);

// 1 MiB on one host, where starting a bucket costs little. Between hosts it doubles, up to 16 MiB, until
// latency is at most a fifth of the time of a bucket. forced: as in choose().
int64_t plan_bucket_bytes(const Topology& topology, std::string_view forced);

}  // namespace rueda::schedule
