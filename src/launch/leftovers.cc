#include "launch/leftovers.h"

#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <vector>

#include "launch/processes.h"
#include "launch/warning.h"

namespace rueda::launch {
namespace {

// From SIGTERM to SIGKILL, for processes that the ranks left behind when they ended.
constexpr Nanos kLeftoverGrace = 300 * kMillisecond;
constexpr Nanos kSweepLimit = 5 * kSecond;  // a process in uninterruptible sleep cannot be killed

}  // namespace

bool Leftovers::end(Nanos now, std::span<const pid_t> spared) {
  const std::vector<pid_t> left = descendants_of(getpid(), spared);
  const bool is_first = began_ == 0;
  if (is_first) began_ = now;
  const bool is_late = now - began_ >= kLeftoverGrace;
  for (const pid_t pid : left)
    if (is_first || is_late) kill(pid, is_late ? SIGKILL : SIGTERM);
  if (!left.empty() && now - began_ < kSweepLimit) return false;
  if (!left.empty()) warn("agent", fmt::format("process {} cannot be killed", left.front()));
  is_over_ = true;
  return true;
}

}  // namespace rueda::launch
