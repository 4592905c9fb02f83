#include <array>

#include "rueda/schedule/algorithm.h"
#include "rueda/schedule/algorithms.h"

namespace rueda::schedule {

// If costs are equal, the first algorithm is chosen.
std::span<const Algorithm> algorithms() {
  static const std::array all = {
      kAllreduceDirect,
      kAllreduceFlatGather,
      kAllreduceTwoLevel,
      kAllreduceTwoLevelDoubling,
      kAllreduceRing,
      kAllreduceRecursiveDoubling,
      kAllreduceHalvingDoubling,
      kAllreduceAdasum,
      kAllreduceEncoded,
      kAllgatherDirect,
      kAllgatherRing,
      kAllgatherBruck,
      kAllgatherTwoLevel,
      kBroadcastBinomial,
      kBroadcastChain,
      kBroadcastScatterAllgather,
      kBroadcastTwoLevel,
      kReducescatterDirect,
      kReducescatterRing,
      kReducescatterTwoLevel,
      kAlltoallPairwise,
      kAlltoallBruck,
      kBarrierDissemination,
  };
  return all;
}

bool is_order_preserving(const Algorithm& algorithm, const Topology& topology) {
  if (algorithm.preserves_order != PreservesOrder::kWhereHostsHaveOneRank)
    return algorithm.preserves_order == PreservesOrder::kAlways;
  return topology.host_count() == topology.size();
}

const Algorithm* find_algorithm(Collective what, std::string_view name) {
  for (const Algorithm& algorithm : algorithms())
    if (algorithm.what == what && algorithm.name == name) return &algorithm;
  return nullptr;
}

}  // namespace rueda::schedule
