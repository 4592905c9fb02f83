// The `rueda` command. It loads neither a framework nor the core, so it starts in milliseconds.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "cli/commands.h"
#include "cli/parse_error.h"
#include "launch/agent.h"
#include "launch/reaper.h"
#include "rueda/base/release.h"

namespace rueda::cli {
namespace {

constexpr const char* kHelp = R"(rueda: data-parallel training

  rueda run -np 4 python train.py    start a command as several ranks, here or through ssh
  rueda agent --join URL             offer this host to an elastic job that accepts agents
  rueda preflight -H a:8,b:8         check the hosts of a job and the links between them, before it starts
  rueda bench allreduce -np 2        measure this machine; rueda bench --help says what else
  rueda status                       show what running jobs do, and which rank waits for which
  rueda stacks                       show where their threads are, also while they hang
  rueda timeline summary t.json      say where the time of a job went, and what to do about it
  rueda simulate --hosts 8           predict how long a training step takes on a cluster
  rueda env                          list all settings with their values
  rueda env --explain                say which launcher's environment is found here, and why
  rueda doctor                       say what this machine offers, what rueda would use, and what is wrong
  rueda check-build                  say which frameworks this installation serves
  rueda --version                    print the version

rueda run --help lists its options.
)";

struct Command {
  const char* name;
  int (*run)(const Arguments& arguments);
};
constexpr std::array<Command, 10> kCommands = {{{"run", run_command},
                                                {"preflight", preflight_command},
                                                {"bench", bench_command},
                                                {"status", status_command},
                                                {"stacks", stacks_command},
                                                {"timeline", timeline_command},
                                                {"simulate", simulate_command},
                                                {"env", env_command},
                                                {"doctor", doctor_command},
                                                {"check-build", check_build_command}}};

int refuse(const std::string& word) {
  std::vector<std::string> known = {"--help", "--version"};
  for (const Command& command : kCommands) known.emplace_back(command.name);
  fmt::print(stderr, "rueda: {}\n", unknown_word(word, "command", "rueda", known));
  return kUsageError;
}

int dispatch(const Arguments& arguments) {
  const std::string name = arguments.empty() ? "--help" : arguments.front();
  const Arguments rest(arguments.begin() + (arguments.empty() ? 0 : 1), arguments.end());
  const auto* const command =
      std::ranges::find(kCommands, name, [](const Command& one) -> std::string_view { return one.name; });
  if (command != kCommands.end()) return command->run(rest);
  if (name == "agent") return rest.empty() ? launch::agent_main(kRelease) : agent_command(rest);
  if (name == "reap") return launch::reaper_main(rest);
  if (name == "--version" || name == "version") {
    fmt::print("{}\n", kRelease);
    return 0;
  }
  if (name != "--help" && name != "-h" && name != "help") return refuse(name);
  fmt::print(arguments.empty() ? stderr : stdout, "{}", kHelp);
  return arguments.empty() ? kUsageError : 0;
}

}  // namespace

void put(const std::string& text) { (void)std::fputs(text.c_str(), stdout); }

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
