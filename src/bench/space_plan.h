// The commands that make N hosts of one machine: a network name space each, joined by a switch. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace rueda::bench {

struct SpaceCommand {
  int space = 0;  // index of the host in whose name space it runs; kSwitch
  std::vector<std::string> argv;
};
inline constexpr int kSwitch = -1;

// What a token bucket lets pass at once, and what waits before it drops.
struct Shaping {
  int64_t burst_bytes = 0, limit_bytes = 0;
};
Shaping shaping_of(int64_t bits_per_s);

std::string host_address(int host);  // "10.77.0.1" for host 0

// spaces: the hosts' name spaces as `ip` can name them. Each host gets an interface net0, limited to the rate
// in both directions: what it sends by its own queue, what it receives by the switch's, which is longer, as
// those of switches are.
std::vector<SpaceCommand> plan_spaces(std::span<const std::string> spaces, int64_t bits_per_s);

}  // namespace rueda::bench
