#include "rueda/schedule/cost.h"

#include <algorithm>

namespace rueda::schedule {
namespace {

// Each further message costs less than the latency of the first, because posting it overlaps the flight of
// the others. A fifth: a system call takes about a fifth of half a round trip on loopback.
constexpr double kGapShare = 0.2;

double link_us(const LinkCost& link, double messages, double bytes) {
  if (messages <= 0) return 0;
  return link.latency_us + gap_us(link) * (messages - 1) + bytes / (link.bandwidth_gbps * 1e3);
}

}  // namespace

// Where flows meet, the queue of the last switch port overflows. How much that costs depends on the switch.
// Between hosts of 1 Gbit/s with 3 to 7 senders to each receiver, allreduces by the direct algorithm took 1.2
// to 1.4 times their bytes' time (1 MiB) and 1.04 to 1.08 times (16 MiB); at another time up to 2.4 times.
// It is charged generously: in each of these cases, exchange in pairs took no longer where it was possible.
double contention(int32_t senders) {
  constexpr double kPerFurtherSender = 0.2;
  constexpr int32_t kMeasured = 7;
  return 1 + kPerFurtherSender * (std::clamp(senders, 1, kMeasured) - 1);
}

double phase_us(const Topology& topology, const Phase& phase) {
  const double local = link_us(topology.local, phase.local_messages, phase.local_bytes);
  const double remote_bytes = phase.remote_bytes * phase.streams * contention(phase.senders);
  return local + link_us(topology.remote, phase.remote_messages, remote_bytes);
}

double hop_us(const Topology& topology, double bytes) {
  const Rank n = topology.size();
  if (n <= 1) return 0;
  if (topology.is_single_host()) return link_us(topology.local, 1, bytes);
  Rank crossings = 0;
  for (Rank rank = 0; rank < n; ++rank)
    crossings += topology.host_of[rank] != topology.host_of[(rank + 1) % n] ? 1 : 0;
  const double latency =
      (crossings * topology.remote.latency_us + (n - crossings) * topology.local.latency_us) / n;
  return latency + bytes / (topology.remote.bandwidth_gbps * 1e3);
}

double gap_us(const LinkCost& link) { return kGapShare * link.latency_us; }

double reduce_us(const Topology& topology, double bytes) { return bytes / (topology.reduce_gbps * 1e3); }

double copy_us(const Topology& topology, double bytes) {
  return bytes / (topology.local.bandwidth_gbps * 1e3);
}

int32_t largest_host(const Topology& topology) {
  size_t largest = 0;
  for (const auto& host : topology.members()) largest = std::max(largest, host.size());
  return static_cast<int32_t>(largest);
}

double bytes_of(const Spec& spec, int64_t elements) {
  return static_cast<double>(elements) * static_cast<double>(size_of(spec.dtype));
}

double partial_bytes_of(const Spec& spec, int64_t elements) {
  return static_cast<double>(elements) * static_cast<double>(size_of(accumulator_of(spec.dtype)));
}

Phase all_to_all(const Topology& topology, double bytes) {
  const int32_t largest = largest_host(topology);
  const double local = largest - 1;
  const double remote = topology.size() - largest;
  return {.local_messages = local,
          .local_bytes = local * bytes,
          .remote_messages = remote,
          .remote_bytes = remote * bytes,
          .streams = largest,
          .senders = topology.host_count() - 1};
}

Phase neighbour(const Topology& topology, double messages, double bytes) {
  if (topology.size() <= 1) return {};
  if (topology.is_single_host()) return {.local_messages = messages, .local_bytes = bytes};
  return {.remote_messages = messages, .remote_bytes = bytes};
}

Phase anywhere(const Topology& topology, double bytes) {
  if (topology.size() <= 1) return {};
  if (topology.is_single_host()) return {.local_messages = 1, .local_bytes = bytes};
  return {.remote_messages = 1, .remote_bytes = bytes, .streams = largest_host(topology)};
}

}  // namespace rueda::schedule
