#include "simulate/validation.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>

#include "bench/sizes.h"
#include "simulate/quantile.h"
#include "simulate/simulate.h"
#include "workload/models.h"

namespace rueda::simulate {
namespace {

constexpr double kSame = 0.03;  // two replays that differ by less are equally good

struct Errors {
  double median = 0, p95 = 0;
  int rows = 0, pairs = 0, right = 0;
};

double error_of(const Validation& validation, size_t row) {
  return validation.predicted_ms[row] / validation.measured[row].median_ms() - 1;
}

// Which of two replays of a model leaves more of its speed.
Errors errors_of(const Validation& validation) {
  Errors errors;
  std::vector<double> sizes;
  const auto& rows = validation.measured;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].replay.is_fitted) continue;
    sizes.push_back(std::abs(error_of(validation, i)));
    for (size_t k = 0; k < i; ++k) {
      if (rows[k].replay.is_fitted || rows[k].replay.model != rows[i].replay.model) continue;
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

void add_quick(std::vector<Replay>& all) {
  for (const auto& [model, hosts] :
       {std::pair("resnet101", 2), std::pair("resnet101", 4), std::pair("resnet50", 8)})
    all.push_back({.model = model, .hosts = hosts});
  all.push_back({.model = "resnet50", .hosts = 4, .strategy = "ring"});
  all.push_back({.model = "resnet50", .hosts = 2, .per_host = 2});
  all.push_back({.model = "resnet50", .hosts = 4, .cross_step = true});
  all.push_back({.model = "resnet50", .hosts = 4, .faults = {.hosts = {{1, 500'000'000}}}});
}

void add_all(std::vector<Replay>& all) {
  for (const char* model : {"vgg16", "resnet101", "gpt2"})
    for (const int hosts : {2, 3, 4, 6, 8}) all.push_back({.model = model, .hosts = hosts});
  for (const int hosts : {3, 6, 8, 16}) all.push_back({.model = "resnet50", .hosts = hosts});
  for (const char* model : {"resnet50", "bert_base"}) {
    all.push_back({.model = model, .hosts = 4, .rate = "500mbit"});
    all.push_back({.model = model, .hosts = 4, .rate = "2gbit"});
    all.push_back({.model = model, .hosts = 2, .rate = "5gbit"});
  }
  for (const int64_t kib : {256, 2048, 16384}) {
    all.push_back({.model = "resnet101", .hosts = 4, .bucket_bytes = kib << 10});
    all.push_back({.model = "gpt2", .hosts = 2, .bucket_bytes = kib << 10});
  }
  for (const char* model : {"resnet50", "vgg16"})
    for (const int hosts : {4, 8}) {
      all.push_back({.model = model, .hosts = hosts, .strategy = "ring"});
      all.push_back({.model = model, .hosts = hosts, .cross_step = true});
    }
  for (const char* model : {"resnet50", "resnet101", "vgg16"})
    for (const int hosts : {2, 4}) all.push_back({.model = model, .hosts = hosts, .per_host = 2});
  for (const char* model : {"resnet50", "vgg16"}) {
    all.push_back({.model = model, .hosts = 4, .faults = {.hosts = {{1, 500'000'000}}}});
    all.push_back({.model = model, .hosts = 4, .faults = {.pairs = {{2, 3, 250'000'000}}}});
    all.push_back({.model = model, .hosts = 4, .faults = {.late = {{1, 0.2}}}});
    for (const char* placement : {"cut", "whole"})
      all.push_back({.model = model,
                     .hosts = 4,
                     .strategy = "parameter-server",
                     .servers = "1:1",
                     .placement = placement});
  }
  all.push_back({.model = "resnet50",
                 .hosts = 4,
                 .strategy = "parameter-server",
                 .servers = "1:4",
                 .placement = "whole"});
}

}  // namespace

std::string Replay::name() const {
  std::string text = fmt::format("{}, {} hosts, {}", model, hosts, rate);
  if (per_host > 1) text += fmt::format(", {} ranks each", per_host);
  if (bucket_bytes > 0) text += ", buckets of " + bench::size_text(bucket_bytes);
  if (strategy != "auto") text += ", " + strategy;
  if (!servers.empty()) text += fmt::format(" {}, {}", servers, placement);
  if (cross_step) text += ", cross-step";
  if (const std::string wrong = faults.text(); !wrong.empty()) text += ", " + wrong;
  return text;
}

std::vector<Replay> replays(bool quick) {
  std::vector<Replay> all;
  for (const char* model : {"resnet50", "bert_base"})
    for (const int hosts : {2, 4})
      for (const int64_t bucket : {1 << 20, 4 << 20})
        if (!quick || (model == std::string("resnet50") && bucket == 1 << 20) ||
            (hosts == 4 && bucket == 4 << 20))
          all.push_back({.model = model, .hosts = hosts, .bucket_bytes = bucket, .is_fitted = true});
  quick ? add_quick(all) : add_all(all);
  return all;
}

std::vector<std::string> command_of(const Replay& replay, int steps, const std::string& report) {
  std::vector<std::string> words = {"bench",        "replay",
                                    "-np",          std::to_string(replay.hosts * replay.per_host),
                                    "--rate",       replay.rate,
                                    "--model",      replay.model,
                                    "--strategy",   replay.strategy,
                                    "--per-host",   std::to_string(replay.per_host),
                                    "--iterations", std::to_string(steps),
                                    "--json",       report};
  if (replay.cross_step) words.emplace_back("--cross-step");
  if (!replay.servers.empty())
    words.insert(words.end(), {"--servers", replay.servers, "--placement", replay.placement});
  std::ranges::copy(replay.faults.words(), std::back_inserter(words));
  return words;
}

double Measured::median_ms() const { return quantile(step_ms, 0.5); }
double Measured::spread() const {
  return step_ms.empty() ? 0 : (std::ranges::max(step_ms) - std::ranges::min(step_ms)) / median_ms();
}

Cluster replay_cluster(const Replay& replay, int cores, const Costs& costs, double latency_us) {
  Cluster cluster;
  for (int i = 0; i < replay.hosts; ++i) {
    Host host;
    host.name = fmt::format("host{}", i);
    host.ranks = replay.per_host;
    host.machine = "this machine";
    host.cores = cores;
    host.rate_bits = static_cast<double>(replay.faults.port_rate(i, 0));
    cluster.hosts.push_back(std::move(host));
  }
  const Result<int64_t> rate = bench::parse_rate(replay.rate);
  cluster.rate_bits = static_cast<double>(rate.is_ok() ? rate.value() : 0);
  cluster.latency_us = latency_us;
  for (const bench::SlowPair& pair : replay.faults.pairs)
    cluster.links.push_back({.from = fmt::format("host{}", pair.first),
                             .to = fmt::format("host{}", pair.second),
                             .rate_bits = static_cast<double>(pair.rate)});
  cluster.costs = costs;
  cluster.source = "network namespaces of this machine";
  return cluster;
}

Result<double> predicted_ms(const Measured& measured, int cores, const Costs& costs, double latency_us) {
  Request request;
  Result<workload::Model> model = workload::find_model(measured.replay.model);
  if (!model.is_ok()) return model.status();
  request.model = workload::stretched(std::move(model).value(), measured.compute_ms, 1);
  request.cluster = replay_cluster(measured.replay, cores, costs, latency_us);
  request.steps = 6;
  request.bucket_bytes = measured.replay.bucket_bytes;
  request.cross_step = measured.replay.cross_step;
  request.algorithm = measured.replay.strategy == "auto" ? "" : measured.replay.strategy;
  if (measured.replay.strategy == "parameter-server") {
    Result<std::vector<bench::ServerCount>> counts =
        bench::parse_servers(measured.replay.servers, kMostRanks);
    if (!counts.is_ok()) return counts.status();
    request.servers = {.strategy = Strategy::kParameterServer,
                       .count = counts.value().front(),
                       .is_whole = measured.replay.placement == "whole",
                       .is_dedicated = false};
    request.algorithm.clear();
  }
  request.late = measured.replay.faults.late;
  request.detail = Detail::kMessage;
  request.split = false;
  const Result<Report> report = simulate(request);
  if (!report.is_ok()) return report.status();
  return report.value().rows.front().step_ms;
}

Result<Calibration> fit(std::span<const Measured> fitted, int cores, const Calibration& begin) {
  Calibration best = begin;
  const auto squares = [&](const Calibration& one) -> Result<double> {
    double sum = 0;
    for (const Measured& measured : fitted) {
      const Result<double> ms = predicted_ms(measured, cores, one.costs, one.latency_us);
      if (!ms.is_ok()) return ms.status();
      sum += std::pow(std::log(ms.value() / measured.median_ms()), 2);
    }
    ++best.tries;
    return sum;
  };
  Result<double> least = squares(best);
  if (!least.is_ok()) return least.status();
  constexpr std::array<double Costs::*, 5> kFields = {&Costs::byte_ns, &Costs::message_us, &Costs::call_us,
                                                      &Costs::wake_us, &Costs::copy_gbps};
  const auto try_one = [&](Calibration next) -> Result<bool> {
    next.tries = best.tries;
    const Result<double> sum = squares(next);
    if (!sum.is_ok()) return sum.status();
    if (sum.value() > 0.99 * least.value()) return false;
    next.tries = best.tries;
    best = next;
    least = sum;
    return true;
  };
  for (const double factor : {2.0, 1.4, 1.15}) {
    for (int round = 0; round < 2; ++round) {
      for (const auto field : kFields)
        for (const double by : {factor, 1 / factor}) {
          Calibration next = best;
          next.costs.*field *= by;
          if (const Result<bool> better = try_one(next); !better.is_ok()) return better.status();
        }
      for (const double by : {factor, 1 / factor}) {
        Calibration next = best;
        next.latency_us *= by;
        if (const Result<bool> better = try_one(next); !better.is_ok()) return better.status();
      }
      for (const double by : {1 - 0.03 * (factor - 1), 1 + 0.03 * (factor - 1)}) {
        Calibration next = best;
        next.costs.payload = std::min(1.0, next.costs.payload * by);
        if (const Result<bool> better = try_one(next); !better.is_ok()) return better.status();
      }
    }
  }
  return best;
}

std::string page(const Validation& validation) {
  std::string text =
      fmt::format("{:<52}{:>12}{:>10}{:>13}{:>9}\n", "replay", "step in ms", "spread", "predicted", "error");
  for (const bool is_fitted : {true, false}) {
    text += is_fitted ? "the costs are fitted to these:\n" : "and these are predicted:\n";
    for (size_t i = 0; i < validation.measured.size(); ++i) {
      const Measured& row = validation.measured[i];
      if (row.replay.is_fitted != is_fitted) continue;
      text +=
          fmt::format("  {:<50}{:>12.1f}{:>8.1f} %{:>13.1f}{:>+7.1f} %\n", row.replay.name(), row.median_ms(),
                      100 * row.spread(), validation.predicted_ms[i], 100 * error_of(validation, i));
    }
  }
  const Errors errors = errors_of(validation);
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
                               {"strategy", row.replay.strategy},
                               {"cross_step", row.replay.cross_step},
                               {"servers", row.replay.servers},
                               {"placement", row.replay.placement},
                               {"faults", row.replay.faults.words()},
                               {"is_fitted", row.replay.is_fitted},
                               {"compute_ms", row.compute_ms},
                               {"step_ms", row.step_ms},
                               {"predicted_ms", validation.predicted_ms[i]},
                               {"error", error_of(validation, i)}});
  }
  return root.dump(2) + "\n";
}

}  // namespace rueda::simulate
