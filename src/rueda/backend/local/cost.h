// What a call of the local backend would take, and which algorithm would run: a step on one host can be
// priced without running it. Pure: values in, values out; any thread. The algorithms are described in
// local.h.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

#include "rueda/backend/local/control_block.h"
#include "rueda/schedule/topology.h"

namespace rueda::backend {

// Below this, showing addresses and a second synchronisation cost more than a copy.
inline constexpr size_t kRegisteredFromBytes = 4 << 10;
// Each rank reads the slots of all others, so the limit shrinks with the ranks.
inline constexpr size_t one_shot_limit_bytes(size_t ranks) {
  return std::min(kSlotBytes, 2 * kSlotBytes / std::max<size_t>(ranks, 1));
}

enum class LocalAlgorithm { kInline, kOneShot, kRegistered, kStaged };
std::string_view name_of(LocalAlgorithm algorithm);  // as Done::how

// is_registered: all tensors of all ranks lie in arenas, and no rank has to scale or fill its input first.
LocalAlgorithm local_algorithm(size_t bytes, size_t ranks, bool is_registered);

// As measured on the host, or assumed.
struct MemoryCost {
  double latency_us = 1;   // until another rank sees what a rank has written
  double copy_gbps = 8;    // gigabytes per second one rank copies
  double reduce_gbps = 6;  // … and adds to a sum
  double host_gbps = 0;    // all ranks together read and write in memory; 0: never the limit
};
MemoryCost memory_cost(const schedule::Topology& topology);  // of the ranks of one host

// Microseconds of an allreduce of so many bytes from when the last rank has submitted it until every rank has
// its result. 0 bytes is a barrier. Within one algorithm more bytes or more ranks never cost less.
double local_us(size_t bytes, size_t ranks, LocalAlgorithm algorithm, const MemoryCost& memory);

}  // namespace rueda::backend
