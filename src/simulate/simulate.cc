#include "simulate/simulate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "rueda/schedule/algorithm.h"
#include "simulate/calls.h"
#include "simulate/host_order.h"
#include "simulate/nccl_price.h"
#include "simulate/quantile.h"
#include "simulate/runs.h"
#include "simulate/specs.h"

namespace rueda::simulate {
namespace {

double busiest(const std::vector<double>& busy) { return busy.empty() ? 0 : std::ranges::max(busy); }

void take_use(const CaseRun& run, const Cluster& cluster, Prediction& row) {
  Nanos whole = 0;
  for (const std::vector<StepTimes>& of_rank : run.job.steps) whole = std::max(whole, of_rank.back().ended);
  const double us = static_cast<double>(whole) / 1e3;
  const CallsUse& use = run.job.use;
  row.link_busy =
      std::max({busiest(use.busy_us.port_out), busiest(use.busy_us.port_in), busiest(use.busy_us.uplinks)}) /
      us;
  const Layout layout = lay_out(cluster);
  for (size_t i = 0; i < use.busy_us.cores.size(); ++i) {
    const double cores = layout.machine_of.empty() ? 1 : layout.cores[i];
    row.core_busy = std::max(row.core_busy, use.busy_us.cores[i] / (us * cores));
  }
  row.algorithms = use.algorithms;
}

std::string bottleneck_of(const Prediction& row) {
  if (row.efficiency > 0.97) return "computing";
  if (row.core_busy > 0.85 && row.core_busy > row.link_busy) return "cores";
  if (row.link_busy > 0.85) return "links";
  const Losses& losses = row.losses;
  if (!row.has_losses) return "";
  const std::array<std::pair<double, const char*>, 4> causes = {{{losses.links_ms, "links"},
                                                                 {losses.hosts_ms, "hosts"},
                                                                 {losses.jitter_ms, "jitter"},
                                                                 {losses.slowdown_ms, "slowdown"}}};
  return std::ranges::max_element(causes, {}, [](const auto& cause) { return cause.first; })->second;
}

Status check_algorithm(const Request& request) {
  const std::string& name = request.algorithm;
  if (name.empty()) return Status::ok();
  if (!request.cluster.gpus.empty()) {
    if (std::ranges::find(kNcclAlgorithms, name) != kNcclAlgorithms.end()) return Status::ok();
    return {Code::kInvalidArgument,
            fmt::format("--algorithm: {} is none of {}, which NCCL has between \"gpus\"", name,
                        fmt::join(kNcclAlgorithms, ", "))};
  }
  // Those that sum float32 as it is, somewhere: some are not for one host.
  const schedule::Topology hosts = schedule::Topology::regular(2, 2);
  std::vector<std::string_view> known;
  for (const schedule::Algorithm& one : schedule::algorithms())
    if (one.what == Collective::kAllreduce && !one.is_encoded && one.cost_us(allreduce_spec(1), hosts))
      known.push_back(one.name);
  std::ranges::sort(known);
  if (std::ranges::find(known, name) != known.end()) return Status::ok();
  return {Code::kInvalidArgument,
          fmt::format("--algorithm: {} is none of {}, which sum the gradients of a model", name,
                      fmt::join(known, ", "))};
}

// Calls of NCCL are priced whole, and servers are simulated in host memory.
Status check_gpus(const Request& request) {
  if (request.cluster.gpus.empty()) return Status::ok();
  if (request.servers.strategy != Strategy::kAllreduce)
    return {Code::kInvalidArgument,
            fmt::format("--strategy {} exchanges variables in host memory, and \"gpus\" of the cluster has "
                        "NCCL's calls; leave out one of them",
                        strategy_text(request.servers))};
  if (request.chunk_bytes != Request().chunk_bytes)
    return {Code::kInvalidArgument,
            "--chunk is of the library's own calls, and \"gpus\" of the cluster has NCCL's; leave out one of "
            "them"};
  if (request.detail == Detail::kMessage)
    return {Code::kInvalidArgument,
            "--detail message follows the messages of the library, and \"gpus\" of the cluster has NCCL's "
            "calls, which are priced whole; leave out one of them"};
  return Status::ok();
}

// What an alltoall takes while it runs: what each rank gives each other one, in the requests, in the answer,
// and in the call. Those that are not awaited may run at once. Their plan is learned only if it is small.
Status check_rows(const workload::Model& model, int ranks) {
  constexpr double kBytesOfPair = 32, kMostBytes = 2.0 * (1 << 30);
  double largest = 0, together = 0;
  for (const workload::Exchange& one : model.exchanges) {
    if (one.what != Collective::kAlltoall) continue;
    const double bytes = kBytesOfPair * ranks * ranks;
    largest = std::max(largest, bytes);
    if (!one.is_awaited) together += bytes;
  }
  if (std::max(largest, together) <= kMostBytes) return Status::ok();
  return {Code::kInvalidArgument,
          fmt::format("{} ranks are too many for the \"exchanges\" of {}: those that run at once would take "
                      "{:.1f} GB; give fewer --ranks",
                      ranks, model.name, std::max(largest, together) / 1e9)};
}

// Credit that comes back while a job computes is followed message by message.
Status check_detail(const Cluster& cluster, bool is_message) {
  if (cluster.burst_bytes <= 0 || cluster.hosts.size() == 1 || is_message) return Status::ok();
  return {Code::kInvalidArgument,
          fmt::format("links of kind tbf are simulated message by message, for up to {} ranks; give fewer "
                      "--ranks, or --detail message, or take kind tcp with the rate that lasts",
                      kMostMessageRanks)};
}

Status check_exchanges(const Request& request) {
  if (request.model.exchanges.empty()) return Status::ok();
  if (request.cross_step)
    return {Code::kInvalidArgument,
            request.model.name +
                " has \"exchanges\", which steps that cross cannot have; leave out --cross-step"};
  if (request.servers.strategy != Strategy::kAllreduce)
    return {
        Code::kInvalidArgument,
        request.model.name + " has \"exchanges\", which parameter servers do not do; leave out --strategy"};
  return Status::ok();
}

Result<Prediction> predict(const Request& request, const Changes& changes) {
  Result<Cluster> cluster = change(request.cluster, changes);
  if (cluster.is_ok()) cluster = order_hosts(std::move(cluster).value(), request.host_order);
  if (!cluster.is_ok()) return cluster.status();
  if (const Status status = bench::Faults{.late = request.late}.check(cluster.value().ranks(), 1, 0);
      !status.is_ok())
    return status;
  const int workers = cluster.value().ranks();
  if (const Status status = check_rows(request.model, workers); !status.is_ok()) return status;
  if (const Status status = check_servers(request.servers, workers); !status.is_ok()) return status;
  const bool is_message =
      request.servers.strategy != Strategy::kAllreduce || is_by_message(request, workers, cluster.value());
  if (const Status status = check_detail(cluster.value(), is_message); !status.is_ok()) return status;
  const int hosts = static_cast<int>(cluster.value().hosts.size());
  Case one(request, cluster.value(), request.late);
  if (request.servers.strategy == Strategy::kAllreduce && request.plans)
    one.tuned_steps = request.tuned_steps;
  const Result<CaseRun> run = run_case(one, kAllCauses, request.steps);
  if (!run.is_ok()) return run.status();
  Prediction row;
  row.ranks = workers;
  row.hosts = hosts;
  if (!request.host_order.empty() && request.host_order != "given")
    for (int host = 0; host < hosts; ++host) row.host_order.push_back(one.cluster.hosts[host].name);
  if (request.servers.strategy != Strategy::kAllreduce) row.servers = request.servers.count.of(workers);
  row.detail = is_message ? Detail::kMessage : Detail::kCall;
  row.compute_ms = request.model.compute_ms / one.usual_speed();
  row.step_ms = quantile(run.value().step_ms, 0.5);
  row.step_p5_ms = quantile(run.value().step_ms, 0.05);
  row.step_p95_ms = quantile(run.value().step_ms, 0.95);
  row.efficiency = row.compute_ms / row.step_ms;
  row.steps = request.steps;
  row.bucket_bytes = one.fused_bytes();
  row.plans_begun = run.value().job.plans_begun;
  row.tuned = run.value().job.tuned;
  const auto a_step = [&](const std::vector<int64_t>& sums) {
    return static_cast<double>(sums.back() - sums[static_cast<size_t>(one.warm_up() - 1)]) / request.steps;
  };
  row.calls = a_step(run.value().job.calls);
  row.messages = a_step(run.value().job.messages);
  row.last_calls = run.value().job.last_calls;
  take_use(run.value(), one.cluster, row);
  one.way = run.value().job.way;
  one.tuned_steps = 0;
  if (request.split) {
    // Shares are of the steps that are told, unless up to sixteen such jobs would take too long.
    constexpr int kMostRankSteps = 512;
    const int most_steps = std::max(2, kMostRankSteps / row.ranks);
    row.lost_steps = std::min(request.steps, most_steps);
    const Result<Losses> losses = split_losses(one, row.lost_steps);
    if (!losses.is_ok()) return losses.status();
    row.losses = losses.value();
    row.has_losses = true;
    Result<std::vector<Culprit>> culprits =
        find_culprits(request, cluster.value(), one.way, std::min(row.lost_steps, 8));
    if (!culprits.is_ok()) return culprits.status();
    row.culprits = std::move(culprits).value();
  }
  row.bottleneck = bottleneck_of(row);
  return row;
}

}  // namespace

Result<Report> simulate(const Request& request) {
  if (const Status status = check_algorithm(request); !status.is_ok()) return status;
  if (const Status status = check_exchanges(request); !status.is_ok()) return status;
  if (const Status status = check_gpus(request); !status.is_ok()) return status;
  Report report{.request = request, .rows = {}};
  std::vector<std::optional<int>> worlds;
  for (const int ranks : request.ranks)
    if (std::ranges::find(worlds, std::optional(ranks)) == worlds.end()) worlds.emplace_back(ranks);
  if (worlds.empty()) worlds.emplace_back();
  for (const std::optional<int>& ranks : worlds) {
    Changes changes = request.changes;
    changes.ranks = ranks;
    Result<Prediction> row = predict(request, changes);
    if (!row.is_ok()) return row.status();
    report.rows.push_back(std::move(row).value());
  }
  report.request.watch = nullptr;  // its part is over
  return report;
}

}  // namespace rueda::simulate
