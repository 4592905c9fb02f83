#include "bench/link_commands.h"

#include <fmt/format.h>

#include <algorithm>

namespace rueda::bench {
namespace {

constexpr int64_t kKilo = 1024;  // tc's "kb"
// The packet memory of one switch port.
constexpr int64_t kSwitchQueue = 2 * kKilo * kKilo;
// What a host may queue: the 1000 frames of Linux's default txqueuelen. A shorter queue would drop segments
// of a host that sends on several connections, because TCP lets each of them queue about 128 KiB.
constexpr int64_t kHostQueue = 1000 * 1514;

std::vector<std::string> token_bucket(const std::string& device, int64_t rate, int64_t burst, int64_t limit) {
  return {"tc",
          "qdisc",
          "add",
          "dev",
          device,
          "root",
          "tbf",
          "rate",
          fmt::format("{}bit", rate),
          "burst",
          std::to_string(burst),
          "limit",
          std::to_string(limit)};
}

}  // namespace

Shaping shaping_of(int64_t bits_per_s) {
  // Offloaded segments have up to 64 KiB. If a burst is smaller than two of them, TCP collapses in both
  // directions. Above 5 Gbit/s the burst is what the link sends in 200 us, so that timers keep up.
  const int64_t burst = std::max(128 * kKilo, bits_per_s / 8 / 5000);
  return {.burst_bytes = burst, .limit_bytes = std::max(kHostQueue, 4 * burst)};
}

std::string host_address(int host) { return fmt::format("10.77.{}.{}", host / 250, host % 250 + 1); }

std::vector<LinkCommand> link_commands(std::span<const std::string> namespaces, int64_t bits_per_s) {
  const Shaping shaping = shaping_of(bits_per_s);
  std::vector<LinkCommand> plan = {{kSwitch, {"ip", "link", "add", "switch", "type", "bridge"}},
                                   {kSwitch, {"ip", "link", "set", "switch", "up"}}};
  for (int host = 0; host < std::ssize(namespaces); ++host) {
    const std::string port = fmt::format("port{}", host);
    plan.push_back({kSwitch,
                    {"ip", "link", "add", port, "type", "veth", "peer", "name", "net0", "netns",
                     namespaces[static_cast<size_t>(host)]}});
    plan.push_back({kSwitch, {"ip", "link", "set", port, "master", "switch", "up"}});
    plan.push_back(
        {kSwitch, token_bucket(port, bits_per_s, shaping.burst_bytes, kSwitchQueue + shaping.limit_bytes)});
    plan.push_back({host, {"ip", "link", "set", "lo", "up"}});
    plan.push_back({host, {"ip", "addr", "add", host_address(host) + "/16", "dev", "net0"}});
    plan.push_back({host, {"ip", "link", "set", "net0", "up"}});
    plan.push_back({host, token_bucket("net0", bits_per_s, shaping.burst_bytes, shaping.limit_bytes)});
  }
  return plan;
}

}  // namespace rueda::bench
