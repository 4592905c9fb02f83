#include "launch/cores.h"

#include <fmt/format.h>
#include <sched.h>

#include <fstream>
#include <map>
#include <utility>

namespace rueda::launch {
namespace {

// Reads the topology that Linux publishes. Returns `missing` if there is none.
int topology_of(int cpu, const char* what, int missing) {
  std::ifstream file(fmt::format("/sys/devices/system/cpu/cpu{}/topology/{}", cpu, what));
  int value = 0;
  return file >> value ? value : missing;
}

}  // namespace

std::vector<int> usable_cpus() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return {0};
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &allowed)) cpus.push_back(cpu);
  return cpus;
}

std::vector<PhysicalCore> physical_cores(const std::vector<int>& cpus) {
  std::map<std::pair<int, int>, PhysicalCore> found;  // (socket, first sibling)
  for (const int cpu : cpus) {
    const int first_sibling = topology_of(cpu, "thread_siblings_list", cpu);  // "3,7" or "3-4"
    found[{topology_of(cpu, "physical_package_id", 0), first_sibling}].push_back(cpu);
  }
  std::vector<PhysicalCore> cores;
  for (auto& [place, cpus] : found) cores.push_back(std::move(cpus));
  return cores;
}

std::vector<int> share_of(const std::vector<PhysicalCore>& cores, size_t ranks, size_t index) {
  if (cores.size() < ranks) {
    std::vector<PhysicalCore> single;
    for (const PhysicalCore& core : cores)
      for (const int cpu : core) single.push_back({cpu});
    return single.size() < ranks ? std::vector<int>() : share_of(single, ranks, index);
  }
  std::vector<int> share;
  for (size_t i = cores.size() * index / ranks; i < cores.size() * (index + 1) / ranks; ++i)
    share.insert(share.end(), cores[i].begin(), cores[i].end());
  return share;
}

}  // namespace rueda::launch
