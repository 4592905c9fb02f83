#include "simulate/nccl_price.h"

#include <algorithm>
#include <cmath>

namespace rueda::simulate {
namespace {

// Microseconds, of protocol Simple.
constexpr double kBaseUs = 8.4, kNvlinkUs = 3.4, kPcieUs = 5.7, kNetworkUs = 9.6;
constexpr double kTreeShare = 0.92;  // of the ring's rate between hosts

}  // namespace

NcclPrice nccl_allreduce(double bytes, const NcclLinks& links) {
  if (links.ranks <= 1) return {.algorithm = "ring"};
  const double n = links.ranks, hosts = links.hosts, within_us = links.is_nvlink ? kNvlinkUs : kPcieUs;
  const double gbps = hosts > 1 ? std::min(links.within_gbps, links.network_gbps) : links.within_gbps;
  const double between = hosts > 1 ? 2 * (hosts - 1) : 0;
  NcclPrice ring{.latency_us = kBaseUs + (2 * (n - 1) - between) * within_us + between * kNetworkUs,
                 .transfer_us = 2 * (n - 1) / n * bytes / (gbps * 1e3),
                 .algorithm = "ring"};
  if (hosts < 2) return ring;
  const NcclPrice tree{
      .latency_us = kBaseUs + 2 * ((n / hosts - 1) * within_us + std::log2(hosts) * kNetworkUs),
      .transfer_us = 2 * (hosts - 1) / hosts * bytes / (kTreeShare * gbps * 1e3),
      .algorithm = "tree"};
  return tree.latency_us + tree.transfer_us < ring.latency_us + ring.transfer_us ? tree : ring;
}

}  // namespace rueda::simulate
