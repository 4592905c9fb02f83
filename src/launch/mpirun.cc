#include "launch/mpirun.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "launch/environment.h"

namespace rueda::launch {
namespace {

constexpr size_t kVersionBytes = 4096;

std::string host_list(const std::vector<HostSlots>& hosts) {
  std::string list;
  for (const HostSlots& host : hosts)
    list += fmt::format("{}{}:{}", list.empty() ? "" : ",", host.name, host.slots);
  return list;
}

std::string ssh_arguments(const SshOptions& ssh) {
  std::string text;
  const auto add = [&text](const std::string& word) { text += (text.empty() ? "" : " ") + word; };
  for (const std::string& word : ssh.args) add(word);
  if (ssh.port != 0) add(fmt::format("-p {}", ssh.port));
  if (!ssh.identity_file.empty()) add("-i " + ssh.identity_file);
  if (!ssh.config_file.empty()) add("-F " + ssh.config_file);
  return text;
}

bool is_open_mpi(MpirunFamily family) {
  return family == MpirunFamily::kOpenMpi4 || family == MpirunFamily::kOpenMpi5;
}

void append(std::vector<std::string>& words, const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
}

void add_open_mpi(std::vector<std::string>& words, const MpirunOptions& mpirun, const RunOptions& options,
                  const MpirunJob& job) {
  if (job.is_root) words.push_back("--allow-run-as-root");
  append(words, {"-np", std::to_string(options.size)});
  // Without slots, Open MPI starts no more ranks than there are cores.
  if (options.allocation.empty()) append(words, {"-H", host_list(options.hosts)});
  append(words, mpirun.binding.empty() ? std::vector<std::string>{"--bind-to", "none", "--map-by", "slot"}
                                       : mpirun.binding);
  const std::string ssh = ssh_arguments(options.ssh);
  if (!ssh.empty() && job.family == MpirunFamily::kOpenMpi4) append(words, {"--mca", "plm_rsh_args", ssh});
  if (!ssh.empty() && job.family == MpirunFamily::kOpenMpi5)
    append(words, {"--prtemca", "plm_ssh_args", ssh});
  if (!job.is_remote) return;
  for (const std::string& name : job.variables) append(words, {"-x", name});
}

// Hydra passes the whole environment to remote ranks.
void add_mpich(std::vector<std::string>& words, const MpirunOptions& mpirun, const RunOptions& options,
               const MpirunJob& job) {
  append(words, mpirun.binding);
  if (job.is_remote && options.allocation.empty()) append(words, {"-hosts", host_list(options.hosts)});
  append(words, {"-n", std::to_string(options.size)});
}

// Intel's Hydra takes no slots with its list of hosts, so each host gets a part of the command line.
void add_intel_parts(std::vector<std::string>& words, const RunOptions& options) {
  int left = options.size;
  for (const HostSlots& host : options.hosts) {
    const int here = std::min(left, host.slots);
    if (here == 0) break;
    if (left != options.size) words.push_back(":");
    append(words, {"-host", host.name, "-n", std::to_string(here)});
    append(words, options.command);
    left -= here;
  }
}

std::string ask_version(const std::string& program) {
  const std::string command = "'" + program + "' --version 2>/dev/null";
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  if (pipe == nullptr) return {};
  std::array<char, kVersionBytes> text{};
  return {text.data(), fread(text.data(), 1, text.size(), pipe.get())};
}

void export_variables(const Variables& variables) {
  for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
}

}  // namespace

std::optional<MpirunFamily> mpirun_family(std::string_view version_text) {
  // Open MPI 4 calls itself OpenRTE here: "mpirun (OpenRTE) 4.1.4".
  for (const std::string_view name : {"(Open MPI) ", "(OpenRTE) "})
    if (const size_t at = version_text.find(name); at != std::string_view::npos) {
      const int major = std::atoi(std::string(version_text.substr(at + name.size(), 4)).c_str());
      return major >= 5 ? MpirunFamily::kOpenMpi5 : MpirunFamily::kOpenMpi4;
    }
  if (version_text.find("Intel(R) MPI") != std::string_view::npos) return MpirunFamily::kIntel;
  if (version_text.find("HYDRA") != std::string_view::npos) return MpirunFamily::kMpich;
  return std::nullopt;
}

std::vector<std::string> mpirun_command(const MpirunOptions& mpirun, const RunOptions& options,
                                        const MpirunJob& job) {
  std::vector<std::string> words = {mpirun.program};
  append(words, mpirun.args);
  if (is_open_mpi(job.family)) {
    add_open_mpi(words, mpirun, options, job);
  } else if (job.family == MpirunFamily::kIntel && job.is_remote && options.allocation.empty()) {
    append(words, mpirun.binding);
    add_intel_parts(words, options);
    return words;
  } else {
    add_mpich(words, mpirun, options, job);
  }
  append(words, options.command);
  return words;
}

Variables mpirun_variables(const RunOptions& options, const MpirunJob& job) {
  const std::string ssh = ssh_arguments(options.ssh);
  if (ssh.empty() || is_open_mpi(job.family)) return {};
  if (job.family == MpirunFamily::kIntel) return {{"I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS", ssh}};
  return {{"HYDRA_LAUNCHER_EXTRA_ARGS", ssh}};
}

std::vector<std::string> ignored_by_mpirun(const RunOptions& options) {
  std::vector<std::string> sentences;
  const auto note = [&](bool is_given, const char* name) {
    if (is_given)
      sentences.push_back(fmt::format("{} has no effect with --mpi: mpirun starts the ranks", name));
  };
  note(!options.output.log_dir.empty(), "--log-dir");
  note(!options.output.output_dir.empty(), "--output-filename");
  note(options.output.shown.has_value(), "--ranks");
  note(options.output.style.has_time, "--prefix-timestamp");
  note(options.binds_cores, "--bind-cores");
  note(options.max_restarts > 0, "--max-restarts");
  return sentences;
}

Status become_mpirun(const MpirunOptions& mpirun, const RunOptions& options) {
  const std::optional<MpirunFamily> family = mpirun_family(ask_version(mpirun.program));
  if (!family)
    return {
        Code::kUnavailable,
        fmt::format("{} is not there, or is not that of Open MPI, MPICH or Intel MPI; install one, name it "
                    "with --mpirun, or leave --mpi out: rueda needs no MPI.",
                    mpirun.program)};
  MpirunJob job{.family = *family, .is_root = geteuid() == 0};
  job.is_remote =
      std::ranges::any_of(options.hosts, [](const HostSlots& host) { return !is_this_machine(host.name); });
  const Variables tuning = tuning_variables(options.tuning);
  export_variables(tuning);
  export_variables({{"RUEDA_CPU_OPERATIONS", "mpi"}, {"PYTHONUNBUFFERED", "1"}});
  for (const auto& [name, value] : forwarded_environment(environ, true)) job.variables.push_back(name);
  export_variables(mpirun_variables(options, job));
  const std::vector<std::string> words = mpirun_command(mpirun, options, job);
  if (options.is_verbose) fmt::print(stderr, "rueda: {}\n", fmt::join(words, " "));
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  return {Code::kUnavailable, fmt::format("cannot start {}: {}", words[0], std::strerror(errno))};
}

}  // namespace rueda::launch
