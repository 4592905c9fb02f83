#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <utility>

#include "cli/commands.h"
#include "cli/run_options.h"
#include "cli/words.h"
#include "launch/host_discovery.h"
#include "launch/job_runner.h"
#include "launch/log_collector.h"
#include "launch/pause.h"
#include "launch/restarts.h"
#include "launch/result_files.h"
#include "rueda/base/setting_names.h"
#include "rueda/store/world.h"

namespace rueda::cli {
namespace {

// `rueda.run` of Python raises this sentence as an exception. It passes --collect-dir as the first
// option, so that the directory is known even if the rest cannot be parsed, and cannot be an argument of
// the user's command.
void leave_refusal(const Arguments& arguments, const std::string& sentence) {
  if (arguments.size() < 2 || arguments.front() != "--collect-dir") return;
  std::ofstream(arguments[1] + "/refusal") << sentence << '\n';
}

// Every rank of the outer launcher starts such a job; its rank 0 tells.
void tell_nesting() {
  const Result<store::World> outer = store::detect_own_world();
  if (outer.is_ok() && outer.value().size > 1 && outer.value().rank == 0)
    fmt::print(
        stderr,
        "rueda: launchers are nested: each of the {} ranks of {} starts a job of its own here, and its ranks "
        "are those of rueda run\n",
        outer.value().size, outer.value().launcher == "rueda" ? "rueda run" : outer.value().launcher);
}

// The options, with a folder from which the logs are copied to a URL; it is removed after the last copy.
Result<launch::RunOptions> with_log_folder(launch::RunOptions options) {
  if (!launch::is_log_url(options.output.log_dir)) return options;
  Result<std::string> folder = launch::make_log_folder();
  if (!folder.is_ok()) return folder.status();
  options.output.log_url = std::exchange(options.output.log_dir, std::move(folder.value()));
  return options;
}

struct Try {
  launch::TryEnd end = launch::TryEnd::kNotStarted;
  int status = 1;
};

Result<Try> run_once(const launch::RunOptions& options) {
  Result<launch::RunOptions> ready = with_log_folder(options);
  if (!ready.is_ok()) return ready.status();
  launch::JobRunner job(std::move(ready.value()));
  const int status = job.run();
  return Try{job.end(), status};
}

// Runs the job, and again if that was asked for. Returns the exit status of the last try.
int run_tries(launch::RunOptions options) {
  launch::Restarts restarts(options.max_restarts, nanos(options.restart_pause_s, kSecond));
  const auto say = [](const std::string& text) {
    if (!text.empty()) fmt::print(stderr, "rueda: {}\n", text);
  };
  while (true) {
    options.restart_count = restarts.count();
    if (restarts.count() > 0) launch::ResultFiles(options.collect_dir).clear();
    const Nanos began = monotonic_now();
    const Result<Try> done = run_once(options);
    if (!done.is_ok()) {
      fmt::print(stderr, "rueda run: {}\n", done.status().why);
      return 1;
    }
    const auto [end, status] = done.value();
    const bool follows = restarts.follows(end, status, monotonic_now() - began);
    say(restarts.notice());
    if (!follows) return status;
    const int signal = launch::pause_for(restarts.pause(), options.is_stdin_watched);
    if (signal == 0) continue;
    restarts.give_up();
    say(fmt::format("{} came before the job was started again", launch::signal_name(signal)));
    say(restarts.notice());
    return 128 + signal;
  }
}

}  // namespace

int run_command(const Arguments& arguments) {
  Result<RunRequest> request = parse_run(arguments);
  if (!request.is_ok()) {
    fmt::print(stderr, "rueda run: {}\n", request.status().why);
    leave_refusal(arguments, request.status().why);
    return kUsageError;
  }
  if (request.value().is_check_build) return check_build_command({});
  if (!request.value().text.empty()) {
    (void)std::fputs(request.value().text.c_str(), stdout);  // main() tells a failure; fmt::print would throw
    return 0;
  }
  for (const std::string& sentence : request.value().without_effect)
    fmt::print(stderr, "rueda: {}\n", sentence);
  launch::Variables given = launch::forwarded_environment(environ, false);
  for (auto& one : assignments_of(request.value().options.command)) given.push_back(std::move(one));
  for (const std::string& sentence : misspelt_settings(given)) fmt::print(stderr, "rueda: {}\n", sentence);
  tell_nesting();
  launch::RunOptions options = std::move(request.value().options);
  if (request.value().mpirun) {
    const Status failed = launch::become_mpirun(*request.value().mpirun, options);
    fmt::print(stderr, "rueda run: {}\n", failed.why);
    return kUsageError;
  }
  options.binary = own_path();
  if (Status status = launch::check_log_url(options.output.log_dir); !status.is_ok()) {
    fmt::print(stderr, "rueda run: {}\n", status.why);
    leave_refusal(arguments, status.why);
    return kUsageError;
  }
  options.output.log_dir = launch::local_log_dir(options.output.log_dir);
  if (const Status found = launch::discover_first_hosts(options); !found.is_ok()) {
    fmt::print(stderr, "rueda run: {}\n", found.why);
    launch::ResultFiles(options.collect_dir).write_verdict(found.why);
    return 1;
  }
  return run_tries(std::move(options));
}

}  // namespace rueda::cli
