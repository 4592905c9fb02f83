// The commands that turn one machine into N hosts, each with its own network namespace, joined by
// a switch. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "bench/faults.h"

namespace rueda::bench {

struct LinkCommand {
  int host = 0;  // the index of the host in whose namespace it runs, or kSwitch
  std::vector<std::string> argv;
};
inline constexpr int kSwitch = -1;

// How many bytes a token bucket lets pass at once, and how many may wait before it drops packets.
struct Shaping {
  int64_t burst_bytes = 0, limit_bytes = 0;
};
Shaping shaping_of(int64_t bits_per_s);

std::string host_address(int host);  // "10.77.0.1" for host 0

// namespaces: the namespaces of the hosts, as `ip` can name them. Each host gets an interface net0 that is
// limited to the rate in both directions. Its own queue limits what it sends. The queue of the switch limits
// what it receives, and is longer, as in real switches. A host of a slow pair queues what is for
// the other one by itself.
std::vector<LinkCommand> link_commands(std::span<const std::string> namespaces, int64_t bits_per_s,
                                       const Faults& faults = {});

}  // namespace rueda::bench
