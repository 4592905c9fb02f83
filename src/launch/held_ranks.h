// Which ranks of a host are stopped or in a debugger. What stops one for a moment, such as a tool that takes
// a stack, is not said: it must be held at two looks.
#pragma once

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "rueda/base/process.h"
#include "rueda/status/job_news.h"

namespace rueda::launch {

// One thread.
class HeldRanks {
 public:
  // One look at the ranks that run, with their processes. Returns who is held, if that has changed.
  std::optional<status::JobNews> look(const std::vector<std::pair<Rank, pid_t>>& running) {
    std::vector<status::HeldProcess> held, said;
    for (const auto& [rank, pid] : running) {
      const status::HeldProcess one{.rank = rank, .state = look_at_process(pid, 0).state};
      if (one.state != ProcessState::kStopped && one.state != ProcessState::kTraced) continue;
      held.push_back(one);
      if (std::ranges::find(seen_, one) != seen_.end()) said.push_back(one);
    }
    seen_ = std::move(held);
    if (said == said_) return std::nullopt;
    said_ = std::move(said);
    return status::JobNews{.held = said_, .without_agent = {}};
  }

 private:
  std::vector<status::HeldProcess> seen_, said_;  // at the last look; to the launcher
};

}  // namespace rueda::launch
