// Which agents the launcher starts, and which are started by other agents. Pure.
#pragma once

#include <vector>

namespace rueda::launch {

// Up to so many hosts are reached from the launcher's machine. A login costs it a few milliseconds of
// computing, and one descriptor in three pipes, so more hosts take a visible time.
inline constexpr int kMostWithoutTree = 64;
// In a larger job each machine starts so many: 1,056 hosts are then two logins away, 33,824 three.
inline constexpr int kUsualFanOut = 32;

// Whose link carries that of each host, as an index of hosts; -1: the launcher reaches it itself. A host
// comes behind the one that starts it. can_be_below: of each host, whether it may be started by another one
// and start others. fan_out: how many each starts at most; 0: none starts others in a job of up to
// kMostWithoutTree hosts, and kUsualFanOut in a larger one.
std::vector<int> plan_agent_tree(const std::vector<bool>& can_be_below, int fan_out);

}  // namespace rueda::launch
