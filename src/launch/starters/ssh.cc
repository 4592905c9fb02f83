#include <csignal>
#include <cstdlib>

#include "launch/processes.h"
#include "launch/starters/spawn_agent.h"
#include "launch/starters/starter.h"

namespace rueda::launch {
namespace {

// Works in every login shell, including csh and fish.
std::string shell_quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'')
      quoted += "'\\''";
    else
      quoted += c;
  }
  return quoted + "'";
}

}  // namespace

std::string agent_command(const std::string& binary) {
  const std::string path = shell_quoted(binary);
  return "test -x " + path + " && exec " + path + " agent || exec rueda agent";
}

std::vector<std::string> ssh_command(const SshOptions& options, const std::string& host,
                                     const std::string& binary) {
  const std::string remote = agent_command(binary);
  if (!is_ssh(options)) return {options.program, host, remote};
  std::vector<std::string> command = {options.program};
  if (!options.config_file.empty()) command.insert(command.end(), {"-F", options.config_file});
  command.insert(command.end(), options.args.begin(), options.args.end());
  if (options.port != 0) command.insert(command.end(), {"-p", std::to_string(options.port)});
  if (!options.identity_file.empty()) command.insert(command.end(), {"-i", options.identity_file});
  // Nobody can answer questions of ssh. A host that ssh sees for the first time is accepted; a host whose key
  // has changed is not.
  command.insert(
      command.end(),
      {"-T", "-x", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=accept-new", "-o", "LogLevel=ERROR",
       "-o", "ConnectTimeout=" + std::to_string(options.connect_timeout_s), "--", host, remote});
  return command;
}

Result<AgentProcess> start_ssh_agent(const SshOptions& options, const std::string& host,
                                     const std::string& binary) {
  const char* path = getenv("PATH");
  Result<std::string> program = find_program(options.program, path != nullptr ? path : "/usr/bin:/bin", "");
  if (!program.is_ok()) return program.status();
  // The ssh client dies with the launcher. Its connection then closes, and the agent on the other host sees
  // end of file.
  return spawn_agent(program.value(), ssh_command(options, host, binary), SIGTERM);
}

}  // namespace rueda::launch
