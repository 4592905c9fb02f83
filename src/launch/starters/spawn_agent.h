// Shared by the starters. The process has three pipes to us and a session of its own, so that Ctrl-C reaches
// the launcher only.
#pragma once

#include <string>
#include <vector>

#include "launch/starters/starter.h"

namespace rueda::launch {

Result<AgentProcess> spawn_agent(const std::string& path, const std::vector<std::string>& argv,
                                 int death_signal);

}  // namespace rueda::launch
