// Which cores of its host a rank runs on with --bind-cores.
#pragma once

#include <cstddef>
#include <vector>

namespace rueda::launch {

// Logical CPUs that share one physical core.
using PhysicalCore = std::vector<int>;

// Logical CPUs that this process may run on.
std::vector<int> usable_cpus();
// The physical cores of these CPUs, ordered by socket and then by number.
std::vector<PhysicalCore> physical_cores(const std::vector<int>& cpus);

// The CPUs of rank number `index` among the `ranks` ranks of a host. Shares differ by at most one core. No
// two ranks share a CPU, nor a core if there are enough of them. Empty if there are fewer CPUs than ranks.
std::vector<int> share_of(const std::vector<PhysicalCore>& cores, size_t ranks, size_t index);

}  // namespace rueda::launch
