// Converts times of the clock of an agent to ours. Pure.
#pragma once

#include <algorithm>
#include <optional>

#include "rueda/base/clock.h"

namespace rueda::launch {

// The offset is the smallest (arrival - sending) seen so far, so the result is too late by the smallest
// latency.
class AgentClock {
 public:
  void note(Nanos sent, Nanos arrived) {
    offset_ = std::min(offset_.value_or(arrived - sent), arrived - sent);
  }
  [[nodiscard]] Nanos to_ours(Nanos agent_clock) const { return agent_clock + offset_.value_or(0); }

 private:
  std::optional<Nanos> offset_;
};

}  // namespace rueda::launch
