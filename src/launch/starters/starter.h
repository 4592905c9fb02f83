// Ways to get an agent running on a host. Each gives three pipes to it; what is said over them is the same
// for all.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "rueda/base/status.h"
#include "rueda/base/unique_fd.h"

namespace rueda::launch {

struct AgentProcess {
  pid_t pid = 0;  // the agent's guardian, or the ssh client
  UniqueFd in;    // we write, non-blocking
  UniqueFd out;   // we read, non-blocking
  UniqueFd err;   // we read, non-blocking
};

Result<AgentProcess> start_local_agent();

struct SshOptions {
  int port = 0;                     // 0 = as the user's configuration says
  std::string identity_file{};      // "" likewise
  std::string config_file{};        // "" likewise
  std::vector<std::string> args{};  // before ours, so that they win
  int connect_timeout_s = 30;
  // One that is not called ssh gets only host and command (Kubeflow's kubexec.sh).
  std::string program = "ssh";
};
// Pure. binary: absolute path of this program; used where the host has it there too, else `rueda` from PATH.
std::vector<std::string> ssh_command(const SshOptions& options, const std::string& host,
                                     const std::string& binary);
Result<AgentProcess> start_ssh_agent(const SshOptions& options, const std::string& host,
                                     const std::string& binary);

// Whether the name is this machine's own: localhost, its host name, or one that resolves to one of its
// addresses (127.0.0.2 and the like are not: test-beds put hosts there).
bool is_this_machine(const std::string& name);
// Whether the text is an address of this machine.
bool is_own_address(const std::string& address);

}  // namespace rueda::launch
