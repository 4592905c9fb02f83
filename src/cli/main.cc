// The `rueda` command. It loads neither a framework nor the core, so it starts in milliseconds.
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "cli/commands.h"
#include "launch/agent.h"
#include "rueda/base/release.h"

namespace rueda::cli {
namespace {

constexpr const char* kHelp = R"(rueda: data-parallel training

  rueda run -np 4 python train.py    start a command as several ranks, here or through ssh
  rueda preflight -H a:8,b:8         check the hosts of a job and the links between them, before it starts
  rueda bench allreduce -np 2        measure this machine; rueda bench --help says what else
  rueda status                       show what running jobs do, and which rank waits for which
  rueda stacks                       show where their threads are, also while they hang
  rueda timeline summary t.json      say where the time of a job went, and what to do about it
  rueda env                          list all settings with their values
  rueda env --explain                say which launcher's environment is found here, and why
  rueda doctor                       say what this machine offers, what rueda would use, and what is wrong
  rueda check-build                  say which frameworks this installation serves
  rueda --version                    print the version

rueda run --help lists its options.
)";

int dispatch(const Arguments& arguments) {
  const std::string command = arguments.empty() ? "--help" : arguments.front();
  const Arguments rest(arguments.begin() + (arguments.empty() ? 0 : 1), arguments.end());
  if (command == "run") return run_command(rest);
  if (command == "agent" && rest.empty()) return launch::agent_main(kRelease);
  if (command == "env") return env_command(rest);
  if (command == "bench") return bench_command(rest);
  if (command == "preflight") return preflight_command(rest);
  if (command == "doctor") return doctor_command(rest);
  if (command == "timeline") return timeline_command(rest);
  if (command == "status") return status_command(rest);
  if (command == "stacks") return stacks_command(rest);
  if (command == "check-build") return check_build_command(rest);
  if (command == "--version" || command == "version") {
    fmt::print("{}\n", kRelease);
    return 0;
  }
  const bool is_help = command == "--help" || command == "-h" || command == "help";
  if (!is_help) fmt::print(stderr, "rueda: unknown command {}\n\n", command);
  fmt::print(is_help ? stdout : stderr, "{}", kHelp);
  return is_help && !arguments.empty() ? 0 : kUsageError;
}

}  // namespace

std::string own_path() {
  std::array<char, 4096> path{};
  const ssize_t size = readlink("/proc/self/exe", path.data(), path.size() - 1);
  return size > 0 ? std::string(path.data(), static_cast<size_t>(size)) : "rueda";
}

}  // namespace rueda::cli

int main(int argc, char** argv) {
  const int status = rueda::cli::dispatch({argv + 1, argv + argc});
  const bool is_written = std::ferror(stdout) == 0 && std::fflush(stdout) == 0;
  if (is_written || status != 0) return status;
  fmt::print(stderr, "rueda: standard output could not be written ({})\n", std::strerror(errno));
  return 1;
}
