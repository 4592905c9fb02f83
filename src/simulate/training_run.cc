#include "simulate/training_run.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "launch/processes.h"
#include "rueda/base/sleep.h"
#include "simulate/held_signals.h"
#include "simulate/quantile.h"
#include "timeline/make_workload.h"
#include "timeline/summarize.h"

extern char** environ;

namespace rueda::simulate {
namespace {

constexpr size_t kMostSaid = 2000;  // bytes of what a run has printed
constexpr Nanos kLook = 50 * kMillisecond;
constexpr size_t kWarmUpSteps = 5;  // in which a plan is learned and TCP finds its windows

// This process's, without what would change a measurement.
std::vector<std::string> environment_with(const std::vector<std::string>& settings) {
  std::vector<std::string> variables;
  for (char** one = environ; *one != nullptr; ++one)
    if (!std::string_view(*one).starts_with("RUEDA_PLAN_BUCKET_BYTES=") &&
        !std::string_view(*one).starts_with("RUEDA_TIMELINE="))
      variables.emplace_back(*one);
  variables.insert(variables.end(), settings.begin(), settings.end());
  return variables;
}

struct Recorded {
  timeline::Names names;
  timeline::Job job;
};

Status read(const std::string& path, Recorded& recorded) {
  const Result<std::vector<std::string>> files = timeline::find_files({path});
  if (!files.is_ok()) return files.status();
  Result<timeline::Job> job = timeline::read_job(files.value(), -1, recorded.names);
  if (!job.is_ok()) return job.status();
  recorded.job = std::move(job).value();
  return Status::ok();
}

// The median of the steps after those in which a plan is learned.
Result<double> step_ms_in(const std::string& path) {
  Recorded recorded;
  if (const Status status = read(path, recorded); !status.is_ok()) return status;
  const Result<timeline::Summary> summary = timeline::summarize(recorded.job, recorded.names);
  if (!summary.is_ok()) return summary.status();
  std::vector<double> lengths_ms;
  const std::vector<timeline::StepSummary>& steps = summary.value().by_step;
  for (size_t i = kWarmUpSteps; i < steps.size(); ++i) lengths_ms.push_back(steps[i].length / 1e6);
  if (!summary.value().has_steps || lengths_ms.empty())
    return Status(
        Code::kUnavailable,
        fmt::format("its timeline has {} steps, and more than {} are needed; let it train longer, and mark "
                    "its steps with hvd.mark_step()",
                    summary.value().has_steps ? steps.size() : 0, kWarmUpSteps));
  return quantile(std::move(lengths_ms), 0.5);
}

Status take_workload(const std::string& path, const std::string& name, Measured& measured) {
  Recorded recorded;
  if (const Status status = read(path, recorded); !status.is_ok()) return status;
  const Result<timeline::MadeWorkload> made = timeline::make_workload(recorded.job, name, recorded.names);
  if (!made.is_ok()) return made.status();
  measured.workload = workload::text_of(made.value().model);
  measured.compute_ms = made.value().model.compute_ms;
  return Status::ok();
}

}  // namespace

Status TrainingRun::start(std::vector<std::string> words, const std::vector<std::string>& settings) const {
  const std::string log = folder + "/log", what = fmt::format("rueda {}", fmt::join(words, " "));
  words.insert(words.begin(), binary);
  const UniqueFd none(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const UniqueFd out(open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  const Result<pid_t> child = launch::spawn({.path = binary,
                                             .argv = std::move(words),
                                             .env = environment_with(settings),
                                             .cwd = {},
                                             .in = none.get(),
                                             .out = out.get(),
                                             .err = out.get(),
                                             .death_signal = SIGTERM});
  if (!child.is_ok()) return child.status();
  int status = 0;
  bool is_told = false;
  while (waitpid(child.value(), &status, WNOHANG) == 0) {
    if (HeldSignals::has_come() && !std::exchange(is_told, true)) kill(child.value(), SIGTERM);
    sleep_for(kLook);
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return Status::ok();
  std::string said = launch::read_text(log);
  said = said.substr(said.size() - std::min(said.size(), kMostSaid));
  return {Code::kUnavailable, fmt::format("`{}` failed:\n{}", what, said)};
}

Status TrainingRun::measure(Measured& measured) const {
  const Replay& replay = measured.replay;
  const std::string alone = folder + "/alone.json", apart = folder + "/apart.json";
  if (measured.workload.empty()) {
    const std::vector<std::string> words = {"run", "-np", std::to_string(replay.hosts * replay.per_host),
                                            "sh",  "-c",  "exec " + replay.program};
    Status status = start(words, {"RUEDA_TIMELINE=" + alone});
    if (status.is_ok()) status = take_workload(alone, replay.program, measured);
    if (!status.is_ok()) return status;
  }
  if (const Status status = start(command_of(replay, 0, ""), {"RUEDA_TIMELINE=" + apart}); !status.is_ok())
    return status;
  const Result<double> ms = step_ms_in(apart);
  if (!ms.is_ok()) return {ms.status().code, fmt::format("{}: {}", replay.name(), ms.status().why)};
  measured.step_ms.push_back(ms.value());
  return Status::ok();
}

}  // namespace rueda::simulate
