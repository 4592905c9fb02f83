#include "cli/job_hosts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "launch/batch_hosts.h"
#include "launch/processes.h"
#include "rueda/store/world.h"

namespace rueda::cli {
namespace {

constexpr size_t kMostBytes = 1 << 20;  // 10 000 hosts with long names; settings need less

const char* get_variable(const char* name) { return getenv(name); }

bool has_program(const std::string& name) {
  const char* path = getenv("PATH");
  return launch::find_program(name, path != nullptr ? path : "/usr/bin:/bin", "").is_ok();
}

Result<std::vector<launch::HostSlots>> named_hosts(const HostRequest& request) {
  if (!request.hosts.empty() && !request.host_file.empty())
    return Status(Code::kInvalidArgument, "Argument hosts and hostfile only allow one provided.");
  if (!request.hosts.empty()) return launch::parse_hosts(request.hosts);
  std::string path = request.host_file;
  // In the launcher pod of the MPI Operator, the workers are the hosts.
  const char* role = getenv("K_MPI_JOB_ROLE");
  if (path.empty() && role != nullptr && std::strcmp(role, "launcher") == 0) path = "/etc/mpi/hostfile";
  if (path.empty()) return std::vector<launch::HostSlots>();
  Result<std::string> text = read_file(path);
  if (!text.is_ok()) return text.status();
  return launch::parse_hostfile(text.value(), path);
}

}  // namespace

Result<std::string> read_file(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error))
    return Status(Code::kInvalidArgument, fmt::format("cannot read {}: it is a directory", path));
  std::ifstream file(path);
  if (!file)
    return Status(Code::kInvalidArgument, fmt::format("cannot read {}: {}", path, std::strerror(errno)));
  std::string text(kMostBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > kMostBytes)
    return Status(
        Code::kInvalidArgument,
        fmt::format("cannot read {}: it has more than 1 MiB, which no list of hosts and no settings need",
                    path));
  return text;
}

Result<bool> find_hosts(const HostRequest& request, launch::RunOptions& options) {
  Result<std::vector<launch::HostSlots>> named = named_hosts(request);
  if (!named.is_ok()) return named.status();
  launch::BatchHosts batch;
  // Each of several processes starts a job of its own, on its own host.
  if (!request.leaves_allocation && !store::is_one_of_several(&get_variable)) {
    Result<std::vector<launch::SlurmNode>> nodes = launch::read_slurm_allocation(&get_variable);
    if (!nodes.is_ok()) return nodes.status();
    options.allocation = std::move(nodes.value());
    Result<launch::BatchHosts> found = launch::BatchHosts{};
    if (options.allocation.empty() && named.value().empty())
      found = launch::read_batch_hosts(&get_variable, &read_file);
    if (!found.is_ok()) return found.status();
    batch = std::move(found.value());
  }
  options.uses_blaunch = batch.scheduler == launch::BatchHosts::Scheduler::kLsf && !request.has_own_ssh &&
                         has_program("blaunch");
  const bool are_named = !named.value().empty() || !options.allocation.empty() || !batch.hosts.empty();
  if (!named.value().empty())
    options.hosts = std::move(named.value());
  else if (!options.allocation.empty())
    options.hosts = launch::slots_of(options.allocation, request.size);
  else if (!batch.hosts.empty())
    options.hosts = std::move(batch.hosts);
  else
    options.hosts = {{"localhost", std::max(1, request.size)}};
  return are_named;
}

}  // namespace rueda::cli
