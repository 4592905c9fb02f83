#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <string_view>

#include "launch/processes.h"
#include "launch/starters/spawn_agent.h"
#include "launch/starters/starter.h"
#include "rueda/base/process.h"

extern char** environ;

namespace rueda::launch {

// One agent on one node, beside the other steps of the job, with all CPUs that the job has there. srun passes
// on standard input and output unchanged; without -u it would keep output back until a line ends.
std::vector<std::string> srun_command(const SlurmNode& node, const std::string& binary) {
  std::vector<std::string> command = {
      "srun",        "--overlap",    "--nodes=1",
      "--ntasks=1",  "--unbuffered", "--nodelist=" + node.name,
      "--mpi=none",  "--export=ALL", fmt::format("--cpus-per-task={}", node.cpus),
      "--input=all", "--output=all", "--error=all",
      "--quiet"};
  if (node.het_group >= 0) command.push_back(fmt::format("--het-group={}", node.het_group));
  command.insert(command.end(), {"sh", "-c", agent_command(binary)});
  return command;
}

// srun takes options from its environment, too. Those of the whole job do not fit a step of one task.
bool is_passed_to_srun(std::string_view name) {
  constexpr std::array<std::string_view, 7> kOfTheJob = {
      "SLURM_LABELIO",        "SLURM_DISTRIBUTION", "SLURM_NTASKS",  "SLURM_NPROCS",
      "SLURM_TASKS_PER_NODE", "SLURM_HINT",         "SSH_CONNECTION"};
  if (name.starts_with("SLURM_CPU_BIND") || name.starts_with("SLURM_NTASKS_PER_")) return false;
  return std::ranges::find(kOfTheJob, name) == kOfTheJob.end();
}

namespace {

// Slurm without cgroups signals every process below slurmstepd when it ends a batch job. srun, which gets
// SIGTERM, has its step killed at once, before the ranks have ended.
bool would_be_signalled() {
  constexpr int kMostAncestors = 64;
  if (read_proc("/proc/self/cgroup").find("slurm") != std::string::npos) return false;
  ProcessLook look = look_at_process(getppid(), 0);
  for (int i = 0; i < kMostAncestors && look.parent > 1; ++i, look = look_at_process(look.parent, 0))
    if (look.name == "slurmstepd") return true;
  return look.name == "slurmstepd";
}

}  // namespace

Result<AgentProcess> start_srun_agent(const SlurmNode& node, const std::string& binary) {
  const char* path = getenv("PATH");
  Result<std::string> program = find_program("srun", path != nullptr ? path : "/usr/bin:/bin", "");
  if (!program.is_ok()) return program.status();
  std::vector<std::string> env;
  for (const char* const* entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (is_passed_to_srun(text.substr(0, text.find('=')))) env.emplace_back(text);
  }
  // srun dies with the launcher. The agent on the node then sees end of file.
  return spawn_agent(program.value(), srun_command(node, binary), SIGTERM, std::move(env),
                     would_be_signalled());
}

}  // namespace rueda::launch
