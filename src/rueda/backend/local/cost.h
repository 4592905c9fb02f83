// Predicts how long a call of the local backend takes and which of the algorithms in local.h it uses, so that
// a step on one host can be priced without running it. Pure: values in, values out; any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

#include "rueda/backend/local/control_block.h"
#include "rueda/schedule/topology.h"

namespace rueda::backend {

// Below this size, a copy costs less than publishing addresses and synchronising a second time.
inline constexpr size_t kRegisteredFromBytes = 4 << 10;
// Each rank reads the one-shot buffers of all others, so the limit shrinks as the number of ranks grows.
inline constexpr size_t one_shot_limit_bytes(size_t ranks) {
  return std::min(kOneShotBytes, 2 * kOneShotBytes / std::max<size_t>(ranks, 1));
}

// Among more ranks, a short reduction is gathered (gathered.h). Among eight on two cores everyone tells
// everyone as fast; one rank more, and the wake-ups weigh more than the way up and down.
inline constexpr size_t kMostDirectRanks = 8;

enum class LocalAlgorithm { kInline, kOneShot, kRegistered, kStaged, kGathered };
std::string_view name_of(LocalAlgorithm algorithm);  // the same as in Done::how

// is_registered: all tensors of all ranks lie in arenas, and no rank has to scale or fill its input first.
LocalAlgorithm local_algorithm(size_t bytes, size_t ranks, bool is_registered);

// Measured on the host, or assumed.
struct MemoryCost {
  double latency_us = 1;   // until another rank sees what a rank has written
  double copy_gbps = 8;    // gigabytes per second that one rank copies
  double reduce_gbps = 6;  // gigabytes per second that one rank adds to a sum
  double host_gbps = 0;    // gigabytes per second that all ranks together read and write; 0 = no limit
};
MemoryCost memory_cost(const schedule::Topology& topology);  // of the ranks of one host

// How many microseconds an allreduce of this size takes, from when the last rank submits it until every
// rank has its result. 0 bytes stand for a barrier. Within one algorithm, more bytes or more ranks
// never cost less.
double local_us(size_t bytes, size_t ranks, LocalAlgorithm algorithm, const MemoryCost& memory);

}  // namespace rueda::backend
