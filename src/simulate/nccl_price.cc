#include "simulate/nccl_price.h"

#include <algorithm>
#include <cmath>

namespace rueda::simulate {
namespace {

// Microseconds, of protocol Simple.
constexpr double kBaseUs = 8.4, kNvlinkUs = 3.4, kPcieUs = 5.7, kNetworkUs = 9.6;
constexpr double kTreeShare = 0.92;  // of the ring's rate between hosts

}  // namespace

NcclPrice nccl_allreduce(double bytes, const NcclLinks& links, std::string_view forced) {
  if (links.ranks <= 1) return {.algorithm = "ring"};
  const double n = links.ranks, hosts = links.hosts, within_us = links.is_nvlink ? kNvlinkUs : kPcieUs;
  const double gbps = hosts > 1 ? std::min(links.within_gbps, links.network_gbps) : links.within_gbps;
  const double between = hosts > 1 ? 2 * (hosts - 1) : 0;
  NcclPrice ring{.latency_us = kBaseUs + (2 * (n - 1) - between) * within_us + between * kNetworkUs,
                 .transfer_us = 2 * (n - 1) / n * bytes / (gbps * 1e3),
                 .algorithm = "ring"};
  if (hosts < 2 || forced == ring.algorithm) return ring;
  const NcclPrice tree{
      .latency_us = kBaseUs + 2 * ((n / hosts - 1) * within_us + std::log2(hosts) * kNetworkUs),
      .transfer_us = 2 * (hosts - 1) / hosts * bytes / (kTreeShare * gbps * 1e3),
      .algorithm = "tree"};
  if (forced == tree.algorithm) return tree;
  return tree.latency_us + tree.transfer_us < ring.latency_us + ring.transfer_us ? tree : ring;
}

NcclPrice nccl_call(Collective what, double bytes, const NcclLinks& links, std::string_view forced) {
  if (what == Collective::kAllreduce || what == Collective::kBarrier || links.ranks <= 1)
    return nccl_allreduce(bytes, links, forced);
  const double n = links.ranks, hosts = links.hosts, within_us = links.is_nvlink ? kNvlinkUs : kPcieUs;
  const double per_host = n / hosts, network_us = hosts > 1 ? kNetworkUs : within_us;
  if (what == Collective::kAlltoall) {
    const double inside_us = bytes * (per_host - 1) / n / (links.within_gbps * 1e3);
    const double outside_us = per_host * bytes * (n - per_host) / n / (links.network_gbps * 1e3);
    return {.latency_us = kBaseUs + network_us,
            .transfer_us = std::max(inside_us, hosts > 1 ? outside_us : 0),
            .algorithm = "sends"};
  }
  const double gbps = hosts > 1 ? std::min(links.within_gbps, links.network_gbps) : links.within_gbps;
  const double whole = what == Collective::kAllgather ? n * bytes : bytes;
  const double share = what == Collective::kBroadcast ? 1 : (n - 1) / n;
  return {.latency_us = kBaseUs + (n - hosts) * within_us + (hosts - 1) * network_us,
          .transfer_us = share * whole / (gbps * 1e3),
          .algorithm = "ring"};
}

}  // namespace rueda::simulate
