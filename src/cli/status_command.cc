#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "cli/asking.h"
#include "cli/commands.h"
#include "cli/number_checks.h"
#include "cli/parse_error.h"
#include "observe/gather.h"
#include "observe/table.h"

namespace rueda::cli {
namespace {

int fail(const char* command, const Status& status) {
  fmt::print(stderr, "rueda {}: {}\n", command, status.why);
  return 1;
}

// -1: go on.
int parse(CLI::App& app, const char* command, const Arguments& arguments) {
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
  try {
    app.parse(std::move(reversed));
  } catch (const CLI::CallForHelp&) {
    put(app.help());
    return 0;
  } catch (const CLI::ParseError& error) {
    fmt::print(stderr, "rueda {}: {}\n", command, sentence_of(error, app, fmt::format("rueda {}", command)));
    return kUsageError;
  }
  return -1;
}

}  // namespace

int status_command(const Arguments& arguments) {
  CLI::App app("What the jobs of this user do at this moment", "rueda status");
  std::string target;
  double timeout_s = observe::kStatusTime_ms / 1e3;
  bool is_json = false, is_watching = false;
  double interval_s = 1;
  app.add_option("JOB", target, kJobHelp);
  CLI::Option* const json = app.add_flag("--json", is_json, "print JSON: an object with a list `ranks`");
  CLI::Option* const watch = app.add_flag("--watch", is_watching, "show it again and again until Ctrl-C");
  json->excludes(watch);
  app.add_option("--interval", interval_s, "seconds between two looks of --watch")
      ->check(number_from(0.1, 3600));
  add_timeout(app, timeout_s);
  if (const int status = parse(app, "status", arguments); status >= 0) return status;
  while (true) {
    const Result<observe::Found> found = observe::find_processes(target, milliseconds(timeout_s));
    if (!found.is_ok()) return fail("status", found.status());
    if (is_watching && isatty(STDOUT_FILENO) != 0) put("\x1b[H\x1b[2J");
    put(is_json ? observe::status_json(found.value().processes, found.value().absent)
                : observe::status_table(found.value().processes, found.value().absent));
    tell("status", found.value().remarks);
    if (!is_watching || std::fflush(stdout) != 0) return 0;
    std::this_thread::sleep_for(std::chrono::duration<double>(interval_s));
  }
}

int stacks_command(const Arguments& arguments) {
  CLI::App app("What every thread of a job does at this moment, equal stacks once", "rueda stacks");
  std::string target;
  Rank rank = -1;
  double timeout_s = observe::kStacksTime_ms / 1e3;
  bool is_json = false, is_native = false;
  app.add_option("JOB", target, kJobHelp);
  app.add_option("--rank", rank, "this rank only")->check(CLI::NonNegativeNumber);
  app.add_flag("--native", is_native, "also native frames, and threads that run no Python");
  app.add_flag("--json", is_json, "print JSON: an object with a list `ranks`, with all that is known");
  add_timeout(app, timeout_s);
  if (const int status = parse(app, "stacks", arguments); status >= 0) return status;
  const int wait_ms = milliseconds(timeout_s);
  const Result<observe::Found> found =
      observe::find_processes(target, std::min(wait_ms, observe::kStatusTime_ms));
  if (!found.is_ok()) return fail("stacks", found.status());
  std::vector<std::string> remarks = remarks_of(found.value());
  const std::vector<observe::RankStacks> stacks =
      observe::ask_for_stacks(found.value(), rank, wait_ms, remarks);
  tell("stacks", remarks);
  if (stacks.empty() && rank < 0) return fail("stacks", {Code::kUnavailable, "no process answered."});
  if (stacks.empty())
    return fail("stacks", {Code::kInvalidArgument, fmt::format("no process here is rank {}.", rank)});
  put(is_json ? observe::stacks_json(stacks) : observe::folded(stacks, is_native));
  return 0;
}

}  // namespace rueda::cli
