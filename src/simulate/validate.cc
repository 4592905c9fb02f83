#include "simulate/validate.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <thread>

#include "bench/temporary_folder.h"
#include "launch/processes.h"

extern char** environ;

namespace rueda::simulate {
namespace {

std::vector<std::string> environment_of(const Replay& replay) {
  std::vector<std::string> variables;
  for (char** one = environ; *one != nullptr; ++one)
    if (!std::string_view(*one).starts_with("RUEDA_PLAN_BUCKET_BYTES=")) variables.emplace_back(*one);
  if (replay.bucket_bytes > 0)
    variables.push_back(fmt::format("RUEDA_PLAN_BUCKET_BYTES={}", replay.bucket_bytes));
  return variables;
}

Status run(const std::string& binary, const Replay& replay, int steps, const std::string& report,
           const std::string& log) {
  std::vector<std::string> argv = command_of(replay, steps, report);
  argv.insert(argv.begin(), binary);
  const UniqueFd none(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const UniqueFd out(open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  const Result<pid_t> child = launch::spawn({.path = binary,
                                             .argv = std::move(argv),
                                             .env = environment_of(replay),
                                             .cwd = {},
                                             .in = none.get(),
                                             .out = out.get(),
                                             .err = out.get(),
                                             .death_signal = SIGTERM});
  if (!child.is_ok()) return child.status();
  int status = 0;
  while (waitpid(child.value(), &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return Status::ok();
  std::string said = launch::read_text(log);
  if (said.size() > 2000) said = said.substr(said.size() - 2000);
  return {Code::kUnavailable, fmt::format("the replay of {} failed:\n{}", replay.name(), said)};
}

Status take(const std::string& report, Measured& measured) {
  const nlohmann::json root = nlohmann::json::parse(launch::read_text(report), nullptr, false);
  if (!root.is_object() || !root.contains("results") || root["results"].size() != 1)
    return {Code::kInternal, "a replay reported nothing"};
  const nlohmann::json& row = root["results"][0];
  if (!row.value("correct", false)) return {Code::kInternal, "a replay had a wrong result"};
  measured.compute_ms = row.at("compute_ms").get<double>();
  measured.step_ms.push_back(row.at("step_ms").get<double>());
  return Status::ok();
}

// The repeats take turns, so that a busy minute of the machine does not fall on one replay alone.
Result<std::vector<Measured>> measure(const ValidateOptions& options) {
  const Result<bench::TemporaryFolder> folder = bench::TemporaryFolder::make("rueda-simulate");
  if (!folder.is_ok()) return folder.status();
  std::vector<Measured> all;
  for (Replay& replay : replays(options.quick))
    all.push_back({.replay = std::move(replay), .compute_ms = 0, .step_ms = {}});
  for (int repeat = 0; repeat < options.repeats; ++repeat)
    for (size_t i = 0; i < all.size(); ++i) {
      fmt::print(stderr, "simulate: repeat {} of {}, replay {} of {}: {}\n", repeat + 1, options.repeats,
                 i + 1, all.size(), all[i].replay.name());
      const std::string report = folder.value().path() + "/report.json";
      Status status =
          run(options.binary, all[i].replay, options.steps, report, folder.value().path() + "/log");
      if (status.is_ok()) status = take(report, all[i]);
      if (!status.is_ok()) return status;
    }
  return all;
}

// Throws what nlohmann::json throws where something is missing or of another type.
Result<Measured> measured_of(const nlohmann::json& one) {
  Measured measured;
  measured.replay = {.model = one.at("model"),
                     .hosts = one.at("hosts"),
                     .per_host = one.at("per_host"),
                     .rate = one.at("rate"),
                     .bucket_bytes = one.at("bucket_bytes"),
                     .strategy = one.at("strategy"),
                     .cross_step = one.at("cross_step"),
                     .is_fitted = one.at("is_fitted")};
  measured.replay.servers = one.value("servers", "");
  measured.replay.placement = one.value("placement", "");
  if (one.contains("faults")) {
    const Result<bench::Faults> faults = bench::faults_of(one["faults"]);
    if (!faults.is_ok()) return faults.status();
    measured.replay.faults = faults.value();
  }
  measured.compute_ms = one.at("compute_ms");
  measured.step_ms = one.at("step_ms").get<std::vector<double>>();
  return measured;
}

// From the JSON of an earlier validation.
Result<std::vector<Measured>> read_measured(const std::string& path) {
  const Status refused(Code::kInvalidArgument,
                       path + " is no report of rueda simulate --validate; check the path");
  const nlohmann::json root = nlohmann::json::parse(launch::read_text(path), nullptr, false);
  if (!root.is_object() || !root.contains("replays") || !root["replays"].is_array()) return refused;
  std::vector<Measured> all;
  try {
    for (const nlohmann::json& one : root["replays"]) {
      Result<Measured> measured = measured_of(one);
      if (!measured.is_ok()) return measured.status();
      all.push_back(std::move(measured).value());
    }
  } catch (const nlohmann::json::exception&) {
    return refused;
  }
  return all;
}

}  // namespace

Result<Validation> validate(const ValidateOptions& options) {
  Result<std::vector<Measured>> measured =
      options.measured.empty() ? measure(options) : read_measured(options.measured);
  if (!measured.is_ok()) return measured.status();
  Validation validation;
  validation.measured = std::move(measured).value();
  validation.cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  std::vector<Measured> fitted;
  for (const Measured& one : validation.measured)
    if (one.replay.is_fitted) fitted.push_back(one);
  fmt::print(stderr, "simulate: fits the costs of this machine to {} replays\n", fitted.size());
  const Result<Calibration> calibration = fit(fitted, validation.cores, {});
  if (!calibration.is_ok()) return calibration.status();
  validation.calibration = calibration.value();
  for (const Measured& one : validation.measured) {
    const Result<double> ms =
        predicted_ms(one, validation.cores, validation.calibration.costs, validation.calibration.latency_us);
    if (!ms.is_ok()) return ms.status();
    validation.predicted_ms.push_back(ms.value());
  }
  return validation;
}

}  // namespace rueda::simulate
