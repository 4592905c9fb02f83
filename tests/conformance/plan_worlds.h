// Worlds in which learned plans are tested on whole engines, and how long an engine says nothing there.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>

#include "engine_job.h"

namespace rueda::runtime::plan_worlds {

struct Wires {
  Rank ranks = 2;
  std::string transports;
  std::string hosts = {};  // as in Job
};

inline std::string name_of_world(const testing::TestParamInfo<Wires>& info) {
  return std::to_string(info.param.ranks) + "ranks" + (info.param.transports == "tcp" ? "_tcp" : "") +
         (info.param.hosts.empty() ? "" : "_hosts");
}

class PlansOnEngines : public testing::TestWithParam<Wires> {
 protected:
  [[nodiscard]] static Rank ranks() { return GetParam().ranks; }
  Job job_{ranks(), GetParam().transports, GetParam().hosts};
};

// How many steps in a row a rank says nothing. step: gets the number of the step. A machine so busy that a
// rank is away for a second ends a plan; then there is something to say for a while.
template <class Step>
int longest_silence(Engine& engine, int steps, const Step& step) {
  int silent = 0, longest = 0;
  int64_t messages = 0;
  for (int i = 0; i < steps && !testing::Test::HasFailure(); ++i) {
    step(i);
    const int64_t now = engine.counters().negotiation_messages;
    silent = std::exchange(messages, now) == now ? silent + 1 : 0;
    longest = std::max(longest, silent);
  }
  return longest;
}

}  // namespace rueda::runtime::plan_worlds
