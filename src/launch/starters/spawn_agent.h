// Shared by the starters: a process with three pipes to us, in a session of its own (Ctrl-C is ours alone).
#pragma once

#include <string>
#include <vector>

#include "launch/starters/starter.h"

namespace rueda::launch {

Result<AgentProcess> spawn_agent(const std::string& path, const std::vector<std::string>& argv,
                                 int death_signal);

}  // namespace rueda::launch
