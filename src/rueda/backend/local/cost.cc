#include "rueda/backend/local/cost.h"

#include <cmath>

namespace rueda::backend {
namespace {

// The cost of telling one more rank, relative to the latency of telling the first: a store to a cache line
// that only that rank reads.
constexpr double kGapShare = 0.2;
constexpr double kLargestTeam = kTeamRanks;

double us(double bytes, double gbps) { return bytes / (gbps * 1e3); }

double told_us(double others, const MemoryCost& memory) {
  return memory.latency_us * (1 + kGapShare * (others - 1));
}

// Chunks overlap: while one is reduced, the next one is contributed and the previous one is taken. Only the
// first chunk waits for the three synchronisations; every further chunk costs three announcements.
double stages_us(double bytes, double others, const MemoryCost& memory) {
  const double chunks = std::ceil(bytes / static_cast<double>(kChunkBytes));
  return 3 * told_us(others, memory) + 3 * kGapShare * memory.latency_us * others * (chunks - 1);
}

}  // namespace

std::string_view name_of(LocalAlgorithm algorithm) {
  switch (algorithm) {
    case LocalAlgorithm::kInline:
      return "inline";
    case LocalAlgorithm::kOneShot:
      return "one_shot";
    case LocalAlgorithm::kRegistered:
      return "registered";
    case LocalAlgorithm::kStaged:
      return "staged";
    case LocalAlgorithm::kGathered:
      return "gathered";
  }
  return "";
}

LocalAlgorithm local_algorithm(size_t bytes, size_t ranks, bool is_registered) {
  if (bytes <= kInlineBytes)
    return ranks > kMostDirectRanks ? LocalAlgorithm::kGathered : LocalAlgorithm::kInline;
  if (is_registered && bytes >= kRegisteredFromBytes) return LocalAlgorithm::kRegistered;
  return bytes <= one_shot_limit_bytes(ranks) ? LocalAlgorithm::kOneShot : LocalAlgorithm::kStaged;
}

MemoryCost memory_cost(const schedule::Topology& topology) {
  return {.latency_us = topology.local.latency_us,
          .copy_gbps = topology.local.bandwidth_gbps,
          .reduce_gbps = topology.reduce_gbps};
}

double local_us(size_t bytes, size_t ranks, LocalAlgorithm algorithm, const MemoryCost& memory) {
  if (ranks <= 1) return 0;
  const auto s = static_cast<double>(bytes);
  const auto n = static_cast<double>(ranks);
  const double others = n - 1;
  const double shared =
      s * others / n;  // the part of a result that the others have, or the part of my input that they need
  const auto bounded = [&](double rank_us) {
    // All ranks together read every input once from memory and write every output once.
    return memory.host_gbps > 0 ? std::max(rank_us, us(2 * s * n, memory.host_gbps)) : rank_us;
  };
  switch (algorithm) {
    case LocalAlgorithm::kInline:
      return told_us(others, memory) + us(s * others, memory.reduce_gbps);
    case LocalAlgorithm::kOneShot:  // copies my input to my one-shot buffer, then reads all one-shot buffers,
                                    // which are in cache
      return told_us(others, memory) + us(s, memory.copy_gbps) + us(s * others, memory.reduce_gbps);
    case LocalAlgorithm::kRegistered:  // reduces my slice of all inputs into all outputs, then waits
      return 2 * told_us(others, memory) +
             bounded(us(shared, memory.reduce_gbps) + us(shared, memory.copy_gbps));
    case LocalAlgorithm::kGathered:  // all tell one, which adds and tells all; teams do so at the same time
      return 2 * told_us(std::min(others, kLargestTeam - 1), memory) +
             (n > kLargestTeam ? 2 * told_us(std::ceil(n / kLargestTeam) - 1, memory) : 0) +
             us(s * others, memory.reduce_gbps);
    case LocalAlgorithm::kStaged:  // gives the others their slices, reduces mine, takes their results
      return stages_us(s, others, memory) +
             bounded(us(shared, memory.reduce_gbps) + 2 * us(shared, memory.copy_gbps));
  }
  return 0;
}

}  // namespace rueda::backend
