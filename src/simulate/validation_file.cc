// Validations as tables for people and as files, from which they are read again.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "simulate/quantile.h"
#include "simulate/validation.h"

namespace rueda::simulate {
namespace {

constexpr double kSame = 0.03;  // two replays that differ by less are equally good

double error_of(const Validation& validation, size_t row) {
  return validation.predicted_ms[row] / validation.measured[row].median_ms() - 1;
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
  measured.replay.dilation = one.value("dilation", 0.0);
  measured.replay.servers = one.value("servers", "");
  measured.replay.placement = one.value("placement", "");
  if (one.contains("faults")) {
    const Result<bench::Faults> faults = bench::faults_of(one["faults"]);
    if (!faults.is_ok()) return faults.status();
    measured.replay.faults = faults.value();
  }
  measured.replay.program = one.value("program", "");
  measured.failed = one.value("failed", "");
  if (one.contains("workload")) measured.workload = one["workload"].dump();
  measured.compute_ms = one.at("compute_ms");
  measured.step_ms = one.at("step_ms").get<std::vector<double>>();
  return measured;
}

}  // namespace

// Which of two replays of a model leaves more of its speed.
Errors errors_of(const Validation& validation) {
  Errors errors;
  if (validation.predicted_ms.empty()) return errors;
  std::vector<double> sizes;
  const auto& rows = validation.measured;
  const auto counts = [](const Measured& row) { return !row.replay.is_fitted && !row.step_ms.empty(); };
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!counts(rows[i])) continue;
    sizes.push_back(std::abs(error_of(validation, i)));
    for (size_t k = 0; k < i; ++k) {
      if (!counts(rows[k]) || rows[k].replay.model != rows[i].replay.model) continue;
      const double one = rows[i].compute_ms / rows[i].median_ms(),
                   other = rows[k].compute_ms / rows[k].median_ms();
      if (std::abs(one / other - 1) < kSame) continue;
      ++errors.pairs;
      const double guess = rows[i].compute_ms / validation.predicted_ms[i];
      const double other_guess = rows[k].compute_ms / validation.predicted_ms[k];
      errors.right += (one > other) == (guess > other_guess) ? 1 : 0;
    }
  }
  errors.rows = static_cast<int>(sizes.size());
  errors.median = quantile(sizes, 0.5);
  errors.p95 = quantile(sizes, 0.95);
  return errors;
}

std::string page(const Validation& validation) {
  std::string text = fmt::format("{:<52} {:>11} {:>9} {:>12} {:>8}\n", "replay", "step in ms", "spread",
                                 "predicted", "error");
  for (const bool is_fitted : {true, false}) {
    if (std::ranges::none_of(validation.measured,
                             [&](const Measured& row) { return row.replay.is_fitted == is_fitted; }))
      continue;
    text += is_fitted ? "the costs are fitted to these:\n" : "and these are predicted:\n";
    for (size_t i = 0; i < validation.measured.size(); ++i) {
      const Measured& row = validation.measured[i];
      if (row.replay.is_fitted != is_fitted || row.step_ms.empty()) continue;
      text += fmt::format("  {:<50} {:>11.1f} {:>7.1f} % {:>12.1f} {:>+6.1f} %\n", row.replay.name(),
                          row.median_ms(), 100 * row.spread(), validation.predicted_ms[i],
                          100 * error_of(validation, i));
    }
  }
  for (const Measured& row : validation.measured)
    if (row.step_ms.empty()) text += fmt::format("not measured: {}: {}\n", row.replay.name(), row.failed);
  const Errors errors = errors_of(validation);
  if (errors.rows == 0) return text;
  text += fmt::format(
      "\n{} replays predicted: median error {:.1f} %, 95th percentile {:.1f} %; of {} pairs of a model that "
      "differ by 3 % or "
      "more, the better one is named in {:.0f} %\n",
      errors.rows, 100 * errors.median, 100 * errors.p95, errors.pairs,
      errors.pairs == 0 ? 100.0 : 100.0 * errors.right / errors.pairs);
  return text;
}

std::string json(const Validation& validation) {
  using Ordered = nlohmann::ordered_json;
  Ordered costs = {{"latency_us", validation.calibration.latency_us}};
  for (const CostField& field : kCostFields)
    costs[std::string(field.name)] = validation.calibration.costs.*field.field;
  const Errors errors = errors_of(validation);
  Ordered root = {{"format", 1},
                  {"is_complete", validation.is_complete},
                  {"is_quick", validation.is_quick},
                  {"repeats", validation.repeats},
                  {"steps", validation.steps},
                  {"program", validation.program},
                  {"cores", validation.cores},
                  {"costs", std::move(costs)},
                  {"median_error", errors.median},
                  {"p95_error", errors.p95},
                  {"pairs", errors.pairs},
                  {"pairs_right", errors.right},
                  {"replays", Ordered::array()}};
  for (size_t i = 0; i < validation.measured.size(); ++i) {
    const Measured& row = validation.measured[i];
    root["replays"].push_back({{"model", row.replay.model},
                               {"hosts", row.replay.hosts},
                               {"per_host", row.replay.per_host},
                               {"rate", row.replay.rate},
                               {"bucket_bytes", row.replay.bucket_bytes},
                               {"dilation", row.replay.dilation},
                               {"strategy", row.replay.strategy},
                               {"cross_step", row.replay.cross_step},
                               {"servers", row.replay.servers},
                               {"placement", row.replay.placement},
                               {"faults", row.replay.faults.words()},
                               {"program", row.replay.program},
                               {"is_fitted", row.replay.is_fitted},
                               {"compute_ms", row.compute_ms},
                               {"step_ms", row.step_ms},
                               {"predicted_ms", nullptr},
                               {"error", nullptr}});
    Ordered& last = root["replays"].back();
    if (!row.workload.empty()) last["workload"] = Ordered::parse(row.workload, nullptr, false);
    if (!row.failed.empty()) last["failed"] = row.failed;
    if (row.step_ms.empty() || validation.predicted_ms.empty()) continue;
    last["predicted_ms"] = validation.predicted_ms[i];
    last["error"] = error_of(validation, i);
  }
  return root.dump(2) + "\n";
}

Result<Validation> parse_validation(const std::string& json, const std::string& path) {
  const Status refused(Code::kInvalidArgument,
                       path + " is no report of rueda simulate --validate; check the path");
  const nlohmann::json root = nlohmann::json::parse(json, nullptr, false);
  if (!root.is_object() || !root.contains("replays") || !root["replays"].is_array()) return refused;
  Validation validation;
  try {
    validation.is_complete = root.value("is_complete", true);
    validation.is_quick = root.value("is_quick", false);
    validation.repeats = root.value("repeats", 1);
    validation.steps = root.value("steps", 5);
    validation.program = root.value("program", "");
    validation.cores = root.value("cores", 0);
    for (const nlohmann::json& one : root["replays"]) {
      Result<Measured> measured = measured_of(one);
      if (!measured.is_ok()) return measured.status();
      validation.measured.push_back(std::move(measured).value());
    }
  } catch (const nlohmann::json::exception&) {
    return refused;
  }
  return validation;
}

std::string costs_json(const Validation& validation) {
  using Ordered = nlohmann::ordered_json;
  Ordered costs = Ordered::object();
  for (const CostField& field : kCostFields)
    costs[std::string(field.name)] = validation.calibration.costs.*field.field;
  const Ordered root = {
      {"comment", "costs fitted by rueda simulate to replays; the hosts are network namespaces"},
      {"hosts", 4},
      {"machine", "this machine"},
      {"cores", validation.cores},
      {"link", {{"rate", "1gbit"}, {"latency_us", validation.calibration.latency_us}}},
      {"costs", std::move(costs)}};
  return root.dump(2) + "\n";
}

}  // namespace rueda::simulate
