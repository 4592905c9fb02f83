#include "simulate/validate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <nlohmann/json.hpp>
#include <thread>

#include "bench/temporary_folder.h"
#include "launch/processes.h"
#include "simulate/held_signals.h"
#include "simulate/training_run.h"
#include "timeline/output_file.h"
#include "workload/json_text.h"

namespace rueda::simulate {
namespace {

constexpr int kFailuresAtFirst = 3;  // if nothing works, the rest is not tried
constexpr int kToldEach = 10;        // tries of a fit, or predictions

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

Status measure_one(const TrainingRun& run, const Validation& asked, Measured& measured) {
  if (!measured.replay.program.empty()) return run.measure(measured);
  const std::string report = run.folder + "/report.json";
  std::vector<std::string> settings;
  if (const int64_t bytes = measured.replay.bucket_bytes; bytes > 0)
    settings.push_back(fmt::format("RUEDA_PLAN_BUCKET_BYTES={}", bytes));
  const Status status = run.start(
      command_of(measured.replay, steps_for(measured.replay, asked.steps, asked.replay_s), report), settings);
  return status.is_ok() ? take(report, measured) : status;
}

// What failed, and the last line that tells of an error, or else the last one: what a table has room for.
std::string in_one_line(const std::string& text) {
  const size_t first = text.find('\n');
  if (first == std::string::npos) return text;
  std::string told;
  bool is_error = false;
  for (size_t begin = first + 1; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    const bool says_error = line.find("Error") != std::string::npos;
    if (!line.empty() && (says_error || !is_error)) told = line;
    is_error = is_error || says_error;
    begin = end + 1;
  }
  told.erase(0,
             std::min(told.find_first_not_of(" |"), told.size()));  // as the launcher quotes what ranks say
  return text.substr(0, first) + " " + told;
}

// What is asked, with what was measured of it before.
std::vector<Measured> rows_of(const Validation& asked) {
  std::vector<Measured> all;
  for (Replay& replay : replays(asked.is_quick, asked.program)) {
    const auto known = std::ranges::find(asked.measured, replay.name(),
                                         [](const Measured& one) { return one.replay.name(); });
    all.push_back(known != asked.measured.end() ? *known : Measured{.replay = std::move(replay)});
    all.back().failed.clear();
  }
  return all;
}

int cores() { return static_cast<int>(std::max(1U, std::thread::hardware_concurrency())); }

Status keep(const Validation& validation, const std::string& path) {
  return path.empty() ? Status::ok() : timeline::write_file(path, json(validation));
}

// The repeats take turns, so that a busy minute of the machine does not fall on one replay alone. What is
// measured is kept at once.
Status measure(const std::string& binary, const std::string& path, Validation& validation) {
  const HeldSignals signals;  // goes last, when the folder is gone
  const Result<bench::TemporaryFolder> folder = bench::TemporaryFolder::make("rueda-simulate");
  if (!folder.is_ok()) return folder.status();
  const TrainingRun run{.binary = binary, .folder = folder.value().path()};
  std::vector<Measured>& all = validation.measured;
  int failures = 0, measured = 0;
  for (int repeat = 1; repeat <= validation.repeats; ++repeat)
    for (size_t i = 0; i < all.size(); ++i) {
      if (std::ssize(all[i].step_ms) >= repeat) continue;
      fmt::print(stderr, "simulate: repeat {} of {}, replay {} of {}: {}\n", repeat, validation.repeats,
                 i + 1, all.size(), all[i].replay.name());
      const Status status = measure_one(run, validation, all[i]);
      if (status.is_ok()) {
        ++measured;
        all[i].failed.clear();
        if (const Status kept = keep(validation, path); !kept.is_ok()) return kept;
        continue;
      }
      if (HeldSignals::has_come()) return status;
      if (++failures == kFailuresAtFirst && measured == 0) return status;
      fmt::print(stderr, "simulate: {}\n", status.why);
      all[i].failed = in_one_line(status.why);
    }
  return Status::ok();
}

Status fit_costs(Validation& validation, bool fits_payload) {
  std::vector<Measured> fitted;
  std::ranges::copy_if(validation.measured, std::back_inserter(fitted),
                       [](const Measured& one) { return one.replay.is_fitted && !one.step_ms.empty(); });
  if (fitted.empty())
    return {Code::kUnavailable, "none of the replays to which costs are fitted was measured; see above"};
  fmt::print(stderr, "simulate: fits the costs of this machine to {} replays\n", fitted.size());
  const auto watch = [&](const FitProgress& now) {
    if (now.tries % kToldEach == 0 || now.tries == now.most)
      fmt::print(stderr, "simulate: fit, try {} of {}: {:.1f} % off in the root of the mean square\n",
                 now.tries, now.most, 100 * now.error);
  };
  const Result<Calibration> calibration = fit(fitted, validation.cores, {}, fits_payload, watch);
  if (!calibration.is_ok()) return calibration.status();
  validation.calibration = calibration.value();
  return Status::ok();
}

Status predict(Validation& validation) {
  for (size_t i = 0; i < validation.measured.size(); ++i) {
    const Measured& one = validation.measured[i];
    if (i % kToldEach == 0)
      fmt::print(stderr, "simulate: predicts replay {} of {}\n", i + 1, validation.measured.size());
    if (one.step_ms.empty()) {
      validation.predicted_ms.push_back(0);
      continue;
    }
    const Result<double> ms =
        predicted_ms(one, validation.cores, validation.calibration.costs, validation.calibration.latency_us);
    if (!ms.is_ok()) return ms.status();
    validation.predicted_ms.push_back(ms.value());
  }
  return Status::ok();
}

}  // namespace

Result<Validation> validate(const ValidateOptions& options) {
  Validation validation;
  validation.is_complete = false;
  validation.is_quick = options.quick;
  validation.repeats = options.repeats;
  validation.steps = options.steps;
  validation.program = options.program;
  if (!options.measured.empty()) {
    const Result<std::string> text = workload::read_text(options.measured, "report of --validate");
    if (!text.is_ok()) return text.status();
    Result<Validation> before = parse_validation(text.value(), options.measured);
    if (!before.is_ok()) return before.status();
    validation = std::move(before).value();
  }
  if (validation.cores == 0) validation.cores = cores();
  const bool is_known = validation.is_complete;
  if (!is_known) {
    if (!options.keep.empty())
      fmt::print(stderr,
                 "simulate: keeps what is measured in {0}; if this is interrupted, --measured {0} goes on\n",
                 options.keep);
    validation.measured = rows_of(validation);
    if (const Status status = measure(options.binary, options.keep, validation); !status.is_ok())
      return status;
    validation.is_complete = true;
    if (const Status kept = keep(validation, options.keep); !kept.is_ok()) return kept;
  }
  if (options.calibration) validation.calibration = *options.calibration;
  if (!options.calibration && is_known)
    fmt::print(stderr,
               "simulate: {} is complete, and its costs are fitted again, which takes minutes; --costs FILE "
               "takes those that --write-costs has written\n",
               options.measured);
  Status status = options.calibration ? Status::ok() : fit_costs(validation, /*fits_payload=*/true);
  if (status.is_ok()) status = predict(validation);
  if (!status.is_ok()) return status;
  return validation;
}

Result<Validation> calibrate(const std::string& binary) {
  Validation validation;
  validation.cores = cores();
  validation.steps = kCalibrationSteps;
  validation.replay_s = kCalibrationReplayS;
  for (Replay& replay : calibration_replays()) validation.measured.push_back({.replay = std::move(replay)});
  Status status = measure(binary, "", validation);
  if (status.is_ok()) status = fit_costs(validation, /*fits_payload=*/false);
  if (status.is_ok()) status = predict(validation);
  if (!status.is_ok()) return status;
  return validation;
}

}  // namespace rueda::simulate
