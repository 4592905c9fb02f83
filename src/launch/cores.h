// Which cores of its host a rank keeps to.
#pragma once

#include <cstddef>
#include <vector>

namespace rueda::launch {

// Logical CPUs that share one physical core.
using PhysicalCore = std::vector<int>;

// Logical CPUs that this process may run on.
std::vector<int> usable_cpus();
// What these make up, neighbours side by side: by socket, then by number.
std::vector<PhysicalCore> physical_cores(const std::vector<int>& cpus);

// The CPUs of the index-th of `ranks` ranks of a host: shares differ by one core at most, and no two ranks
// share a CPU, nor a core where there are enough. Empty where there are fewer CPUs than ranks.
std::vector<int> share_of(const std::vector<PhysicalCore>& cores, size_t ranks, size_t index);

}  // namespace rueda::launch
