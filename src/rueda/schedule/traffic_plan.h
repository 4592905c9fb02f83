// The schedules of a call, and what virtual time (traffic.h) looks up in them: what each step waits for, and
// which messages share a channel. Immutable; any thread.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "rueda/schedule/step.h"

namespace rueda::schedule {

// Calls of equal specs share it.
class TrafficPlan {
 public:
  // schedules: one for each member.
  TrafficPlan(const Spec& spec, std::vector<Schedule> schedules);
  [[nodiscard]] Rank size() const { return static_cast<Rank>(schedules_.size()); }
  [[nodiscard]] std::string_view algorithm() const { return schedules_.front().name; }

 private:
  friend class Traffic;
  struct Node {  // a step
    int32_t waits_for = 0;
    int32_t channel = -1;  // of a message; -1 = a local step
    double bytes = 0;      // of its message, or reduced by it
    std::vector<int32_t> dependents;
  };
  struct Channel {
    Rank from = 0, to = 0;
    std::vector<int32_t> sends, recvs;  // steps
  };
  std::vector<Schedule> schedules_;
  std::vector<std::vector<Node>> nodes_;  // [member][step]
  std::vector<Channel> channels_;         // those that are used
};

}  // namespace rueda::schedule
