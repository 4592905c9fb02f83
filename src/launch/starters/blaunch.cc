#include <csignal>
#include <cstdlib>

#include "launch/processes.h"
#include "launch/starters/spawn_agent.h"
#include "launch/starters/starter.h"

namespace rueda::launch {

// Words without meaning for a shell, because blaunch uses one or none, as the site has it.
std::vector<std::string> blaunch_command(const std::string& host, const std::string& binary) {
  return {"blaunch", host, binary, "agent"};
}

Result<AgentProcess> start_blaunch_agent(const std::string& host, const std::string& binary) {
  const char* path = getenv("PATH");
  Result<std::string> program = find_program("blaunch", path != nullptr ? path : "/usr/bin:/bin", "");
  if (!program.is_ok()) return program.status();
  // blaunch dies with the launcher. The agent on the host then sees end of file.
  return spawn_agent(program.value(), blaunch_command(host, binary), SIGTERM);
}

}  // namespace rueda::launch
