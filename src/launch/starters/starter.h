// The ways to start an agent on a host. Each gives three pipes to the agent, and the messages over them
// are the same.
#pragma once

#include <sys/types.h>

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "launch/slurm_allocation.h"
#include "rueda/base/status.h"
#include "rueda/base/unique_fd.h"

namespace rueda::launch {

// kJoined: nobody has started it; it has called the launcher.
enum class StartWay : uint8_t { kHere, kSsh, kSrun, kBlaunch, kJoined };
// The program that reaches another host; for kHere, what is ours there.
inline std::string_view program_of(StartWay way) {
  constexpr std::array<std::string_view, 5> kPrograms = {"its agent", "ssh", "srun", "blaunch", "its agent"};
  return kPrograms[static_cast<size_t>(way)];
}

// The names of these programs' processes.
inline constexpr std::array<std::string_view, 3> kReachOtherHosts = {"ssh", "srun", "blaunch"};

struct AgentProcess {
  pid_t pid = 0;         // the agent's guardian, or the client of ssh or srun
  UniqueFd in;           // we write, non-blocking
  UniqueFd out;          // we read, non-blocking
  UniqueFd err;          // we read, non-blocking
  bool is_child = true;  // otherwise nobody tells us its exit status
  // When the process was started. An older process is not one of its descendants.
  uint64_t started_ticks = 0;
};

Result<AgentProcess> start_local_agent();

struct SshOptions {
  int port = 0;                     // 0 = the user's configuration decides
  std::string identity_file{};      // "" = the same
  std::string config_file{};        // "" = the same
  std::vector<std::string> args{};  // placed before ours, so that they take precedence
  int connect_timeout_s = 30;
  // A program that is not named ssh gets only the host and the command (Kubeflow's kubexec.sh).
  std::string program = "ssh";
};
inline bool is_ssh(const SshOptions& options) {
  return options.program.substr(options.program.rfind('/') + 1) == "ssh";
}
// Pure. binary: absolute path of this program. A host that has no program there runs `rueda` from its PATH.
std::vector<std::string> ssh_command(const SshOptions& options, const std::string& host,
                                     const std::string& binary);
Result<AgentProcess> start_ssh_agent(const SshOptions& options, const std::string& host,
                                     const std::string& binary);

// Pure. node: of the Slurm allocation in which this process runs.
std::vector<std::string> srun_command(const SlurmNode& node, const std::string& binary);
// Whether srun gets this variable. Pure.
bool is_passed_to_srun(std::string_view name);
Result<AgentProcess> start_srun_agent(const SlurmNode& node, const std::string& binary);

// Pure. host: of the LSF job in which this process runs. The program must be at the same path there.
std::vector<std::string> blaunch_command(const std::string& host, const std::string& binary);
Result<AgentProcess> start_blaunch_agent(const std::string& host, const std::string& binary);

// Whether the name stands for this machine: localhost, its host name, or a name that resolves to one of its
// addresses. 127.0.0.2 and the like are not among them, because test-beds use them for other hosts.
bool is_this_machine(const std::string& name);
// Whether the text is an address of this machine.
bool is_own_address(const std::string& address);

}  // namespace rueda::launch
