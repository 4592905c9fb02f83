#include "simulate/validation.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <future>
#include <iterator>

#include "bench/request.h"
#include "bench/sizes.h"
#include "simulate/quantile.h"
#include "simulate/simulate.h"
#include "workload/models.h"

namespace rueda::simulate {
namespace {

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

// Of a fit: what is changed, by which factors, how often.
constexpr std::array<double Costs::*, 5> kFields = {&Costs::byte_ns, &Costs::message_us, &Costs::call_us,
                                                    &Costs::wake_us, &Costs::copy_gbps};
constexpr std::array<double, 3> kFactors = {2.0, 1.4, 1.15};
constexpr int kRounds = 2;

// Each number is tried larger and smaller: the fields, the latency and the payload.
int tries_of(bool fits_payload) {
  const auto numbers = static_cast<int>(kFields.size()) + (fits_payload ? 2 : 1);
  return 1 + static_cast<int>(kFactors.size()) * kRounds * 2 * numbers;
}

}  // namespace

std::vector<Replay> calibration_replays() {
  std::vector<Replay> all;
  const auto add = [&](const char* model, int hosts, const char* rate, int64_t kib) {
    all.push_back({.model = model,
                   .hosts = hosts,
                   .rate = rate,
                   .bucket_bytes = kib << 10,
                   .dilation = 1,
                   .is_fitted = true});
  };
  add("resnet50", 2, "1gbit", 1024);  // links are the limit
  add("resnet50", 4, "1gbit", 1024);
  add("resnet50", 2, "5gbit", 1024);  // cores
  add("resnet50", 4, "2gbit", 4096);
  add("resnet50", 2, "5gbit", 256);  // calls
  return all;
}

std::string Replay::name() const {
  std::string text = fmt::format("{}, {} hosts, {}", model, hosts, rate);
  if (per_host > 1) text += fmt::format(", {} ranks each", per_host);
  if (bucket_bytes > 0) text += ", buckets of " + bench::size_text(bucket_bytes);
  if (dilation > 0) text += fmt::format(", dilation {:g}", dilation);
  if (strategy != "auto") text += ", " + strategy;
  if (!servers.empty()) text += fmt::format(" {}, {}", servers, placement);
  if (cross_step) text += ", cross-step";
  if (const std::string wrong = faults.text(); !wrong.empty()) text += ", " + wrong;
  return text;
}

std::vector<Replay> replays(bool quick, const std::string& program) {
  std::vector<Replay> all;
  for (const char* model : {"resnet50", "bert_base"})
    for (const int hosts : {2, 4})
      for (const int64_t bucket : {1 << 20, 4 << 20})
        if (!quick || (model == std::string("resnet50") && bucket == 1 << 20) ||
            (hosts == 4 && bucket == 4 << 20))
          all.push_back({.model = model, .hosts = hosts, .bucket_bytes = bucket, .is_fitted = true});
  quick ? add_quick(all) : add_all(all);
  for (const int hosts : {2, 4})
    if (!program.empty()) all.push_back({.model = program, .hosts = hosts, .program = program});
  return all;
}

double least_step_s(const Replay& replay) {
  const Result<workload::Model> model = workload::find_model(replay.model);
  const Result<int64_t> rate = bench::parse_rate(replay.rate);
  if (!model.is_ok() || !rate.is_ok()) return 0;
  int64_t slowest = rate.value();
  for (const bench::SlowHost& host : replay.faults.hosts) slowest = std::min(slowest, host.rate);
  const double links_share = 2.0 * (replay.hosts - 1) / replay.hosts;
  const double ms_per_byte = links_share * 8e3 / static_cast<double>(slowest);
  const double dilation =
      replay.dilation > 0 ? replay.dilation : bench::kRatioRate / static_cast<double>(rate.value());
  return workload::earliest_end_ms(model.value(), dilation, ms_per_byte) / 1e3;
}

int steps_for(const Replay& replay, int most, double seconds) {
  const double step_s = least_step_s(replay);
  return step_s > 0 ? std::clamp(static_cast<int>(seconds / step_s) - 1, 2, most) : most;
}

std::vector<std::string> command_of(const Replay& replay, int steps, const std::string& report) {
  if (!replay.program.empty())
    return {"bench", "replay", "-np", std::to_string(replay.hosts), "--rate", replay.rate,
            "--",    "sh",     "-c",  "exec " + replay.program};
  std::vector<std::string> words = {"bench",        "replay",
                                    "-np",          std::to_string(replay.hosts * replay.per_host),
                                    "--rate",       replay.rate,
                                    "--model",      replay.model,
                                    "--strategy",   replay.strategy,
                                    "--per-host",   std::to_string(replay.per_host),
                                    "--iterations", std::to_string(steps),
                                    "--json",       report};
  if (replay.dilation > 0) words.insert(words.end(), {"--dilation", fmt::format("{:g}", replay.dilation)});
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
  request.steps = 6;
  const bool is_program = !measured.workload.empty();
  Result<workload::Model> model = is_program
                                      ? workload::parse_model(measured.workload, measured.replay.program)
                                      : workload::find_model(measured.replay.model);
  if (!model.is_ok()) return model.status();
  if (is_program && model.value().spread) {  // what replays do not have
    request.noise.step = model.value().spread->step;
    request.noise.rank = model.value().spread->rank;
    request.steps = 30;
  }
  request.model = workload::stretched(std::move(model).value(), measured.compute_ms, 1);
  request.cluster = replay_cluster(measured.replay, cores, costs, latency_us);
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

Result<Calibration> fit(std::span<const Measured> fitted, int cores, const Calibration& begin,
                        bool fits_payload, const FitWatch& watch) {
  Calibration best = begin;
  const auto squares = [&](const Calibration& one) -> Result<double> {
    std::vector<std::future<Result<double>>> predicted;  // [fitted], on all cores
    for (const Measured& measured : fitted)
      predicted.push_back(std::async(std::launch::async, [&measured, &one, cores] {
        return predicted_ms(measured, cores, one.costs, one.latency_us);
      }));
    double sum = 0;
    Status failed;
    for (size_t i = 0; i < fitted.size(); ++i) {
      const Result<double> ms = predicted[i].get();
      if (!ms.is_ok()) failed = ms.status();
      if (failed.is_ok()) sum += std::pow(std::log(ms.value() / fitted[i].median_ms()), 2);
    }
    if (!failed.is_ok()) return failed;
    ++best.tries;
    return sum;
  };
  Result<double> least = squares(best);
  if (!least.is_ok()) return least.status();
  const auto tell = [&] {
    if (!watch) return;
    const double error = std::sqrt(least.value() / static_cast<double>(std::max<size_t>(fitted.size(), 1)));
    watch({.tries = best.tries, .most = tries_of(fits_payload), .error = error});
  };
  tell();
  const auto try_one = [&](Calibration next) -> Result<bool> {
    next.tries = best.tries;
    const Result<double> sum = squares(next);
    if (!sum.is_ok()) return sum.status();
    const bool is_better = sum.value() <= 0.99 * least.value();
    if (is_better) {
      next.tries = best.tries;
      best = next;
      least = sum;
    }
    tell();
    return is_better;
  };
  for (const double factor : kFactors) {
    for (int round = 0; round < kRounds; ++round) {
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
      if (!fits_payload) continue;
      for (const double by : {1 - 0.03 * (factor - 1), 1 + 0.03 * (factor - 1)}) {
        Calibration next = best;
        next.costs.payload = std::min(1.0, next.costs.payload * by);
        if (const Result<bool> better = try_one(next); !better.is_ok()) return better.status();
      }
    }
  }
  return best;
}

}  // namespace rueda::simulate
