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

std::vector<std::string> htb_class(const std::string& parent, int minor, int64_t rate, int64_t most) {
  const std::string burst = std::to_string(shaping_of(most).burst_bytes);
  return {"tc",
          "class",
          "add",
          "dev",
          "net0",
          "parent",
          parent,
          "classid",
          fmt::format("1:{:x}", minor),
          "htb",
          "rate",
          fmt::format("{}bit", rate),
          "ceil",
          fmt::format("{}bit", most),
          "burst",
          burst,
          "cburst",
          burst,
          "quantum",
          "65536"};
}

// What a host sends where some of it, for single hosts, is limited more than all of it. Each of them is
// promised an equal share of the port, if it may use so much, and what is for all others the rest.
void add_slow_pairs(std::vector<LinkCommand>& plan, int host, int64_t bits_per_s,
                    std::span<const SlowPair> pairs) {
  constexpr int kPort = 1, kOthers = 2, kFirst = 3;  // classes
  const std::string queue = std::to_string(shaping_of(bits_per_s).limit_bytes);
  plan.push_back({host,
                  {"tc", "qdisc", "add", "dev", "net0", "root", "handle", "1:", "htb", "default",
                   fmt::format("{:x}", kOthers)}});
  plan.push_back({host, htb_class("1:", kPort, bits_per_s, bits_per_s)});
  const auto add = [&](int minor, int64_t rate, int64_t most) {
    plan.push_back({host, htb_class("1:1", minor, rate, most)});
    plan.push_back({host,
                    {"tc", "qdisc", "add", "dev", "net0", "parent", fmt::format("1:{:x}", minor), "bfifo",
                     "limit", queue}});
  };
  int64_t rest = bits_per_s;
  for (size_t i = 0; i < pairs.size(); ++i) {
    const int minor = kFirst + static_cast<int>(i);
    const int64_t promised = std::min(pairs[i].rate, bits_per_s / (std::ssize(pairs) + 1));
    rest -= promised;
    add(minor, promised, pairs[i].rate);
    const int other = pairs[i].first == host ? pairs[i].second : pairs[i].first;
    plan.push_back(
        {host,
         {"tc", "filter", "add", "dev", "net0", "parent", "1:", "protocol", "ip", "prio", "1", "u32", "match",
          "ip", "dst", host_address(other) + "/32", "flowid", fmt::format("1:{:x}", minor)}});
  }
  add(kOthers, rest, bits_per_s);
}

}  // namespace

Shaping shaping_of(int64_t bits_per_s) {
  // Offloaded segments have up to 64 KiB. If a burst is smaller than two of them, TCP collapses in both
  // directions. Above 5 Gbit/s the burst is what the link sends in 200 us, so that timers keep up.
  const int64_t burst = std::max(128 * kKilo, bits_per_s / 8 / 5000);
  return {.burst_bytes = burst, .limit_bytes = std::max(kHostQueue, 4 * burst)};
}

std::string host_address(int host) { return fmt::format("10.77.{}.{}", host / 250, host % 250 + 1); }

std::vector<LinkCommand> link_commands(std::span<const std::string> namespaces, int64_t bits_per_s,
                                       const Faults& faults) {
  std::vector<LinkCommand> plan = {{kSwitch, {"ip", "link", "add", "switch", "type", "bridge"}},
                                   {kSwitch, {"ip", "link", "set", "switch", "up"}}};
  for (int host = 0; host < std::ssize(namespaces); ++host) {
    const int64_t rate = faults.port_rate(host, bits_per_s);
    const Shaping shaping = shaping_of(rate);
    const std::string port = fmt::format("port{}", host);
    plan.push_back({kSwitch,
                    {"ip", "link", "add", port, "type", "veth", "peer", "name", "net0", "netns",
                     namespaces[static_cast<size_t>(host)]}});
    plan.push_back({kSwitch, {"ip", "link", "set", port, "master", "switch", "up"}});
    plan.push_back(
        {kSwitch, token_bucket(port, rate, shaping.burst_bytes, kSwitchQueue + shaping.limit_bytes)});
    plan.push_back({host, {"ip", "link", "set", "lo", "up"}});
    plan.push_back({host, {"ip", "addr", "add", host_address(host) + "/16", "dev", "net0"}});
    plan.push_back({host, {"ip", "link", "set", "net0", "up"}});
    std::vector<SlowPair> pairs;
    for (const SlowPair& pair : faults.pairs)
      if (pair.first == host || pair.second == host) pairs.push_back(pair);
    if (pairs.empty())
      plan.push_back({host, token_bucket("net0", rate, shaping.burst_bytes, shaping.limit_bytes)});
    else
      add_slow_pairs(plan, host, rate, pairs);
  }
  return plan;
}

}  // namespace rueda::bench
