// Shared by the starters. The process has three pipes to us and a session of its own, so that Ctrl-C reaches
// the launcher only.
#pragma once

#include <string>
#include <vector>

#include "launch/starters/starter.h"

namespace rueda::launch {

// For a shell of another host: runs the program at that path if there is one, otherwise `rueda` in PATH.
std::string agent_command(const std::string& binary);
std::vector<std::string> own_environment();
Result<AgentProcess> spawn_agent(const std::string& path, const std::vector<std::string>& argv,
                                 int death_signal, std::vector<std::string> env = own_environment(),
                                 bool is_aside = false);

}  // namespace rueda::launch
