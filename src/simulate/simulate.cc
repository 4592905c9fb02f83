#include "simulate/simulate.h"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>

#include "rueda/backend/nccl/probe.h"
#include "rueda/schedule/bucket_bytes.h"
#include "simulate/call_prices.h"
#include "simulate/host_order.h"
#include "simulate/job.h"
#include "simulate/quantile.h"
#include "simulate/specs.h"

namespace rueda::simulate {
namespace {

constexpr int kWarmUp = 6;  // steps in which a plan is learned

// What may be taken away, to see how much of a step it costs.
enum Cause : unsigned { kLinks = 1, kHosts = 2, kJitter = 4, kSlowdown = 8, kAllCauses = 15 };

struct Case {
  const Request& request;
  Cluster cluster;  // with_servers()
  int workers = 0;
  Program program;
  int64_t bucket_bytes = 0;  // of plans; what is taken away changes no decision

  // Those that take any time: without the others a step is the same.
  [[nodiscard]] unsigned causes() const {
    const Noise& noise = request.noise;
    const bool has_jitter = noise.step != 0 || noise.rank != 0 || !request.late.empty();
    const bool has_slowdown = workers > 1 && cluster.costs.slow_share != 0;
    return kLinks | kHosts | (has_jitter ? kJitter : 0U) | (has_slowdown ? kSlowdown : 0U);
  }
};

Costs none_of(Costs costs) {
  return {.submit_us = 0,
          .call_us = 0,
          .wake_us = 0,
          .message_us = 0,
          .byte_ns = 0,
          .copy_gbps = 1e6,
          .payload = costs.payload,
          .control_us = 0};
}

// Links that move everything at once.
void unbind_links(Layout& layout) {
  constexpr double kAnyRate = 1e6;
  for (schedule::LinkCost& link : layout.network.links) link = {.latency_us = 0, .bandwidth_gbps = kAnyRate};
  for (double& port : layout.network.port_gbps) port = kAnyRate;
  layout.topology.remote = {.latency_us = 0, .bandwidth_gbps = kAnyRate};
  if (!layout.gpus.empty()) layout.topology.local = layout.topology.remote;
}

// Calls in shared memory and by NCCL have no messages of ours.
bool is_by_message(const Request& request, int ranks, const Cluster& cluster) {
  if (cluster.hosts.size() == 1 || !cluster.gpus.empty()) return false;
  return request.detail == Detail::kMessage ||
         (request.detail == Detail::kAuto && ranks <= kMostMessageRanks);
}

// Links as the library measures them at init: from the first host to the next.
Layout measured_layout(const Cluster& cluster) {
  Layout layout = lay_out(cluster);
  if (layout.network.port_gbps.size() > 1) layout.topology.remote = layout.network.link(0, 1);
  return layout;
}

// As the library finds it out with NCCL itself.
int64_t nccl_bucket_bytes(const Layout& layout, const Costs& costs, const Request& request) {
  CallPrices prices(layout, costs, {.algorithm = {}, .chosen_for = layout.topology});
  nccl::Probe probe;
  while (const std::optional<size_t> bytes = probe.next()) {
    const CallPrice& price = prices.of(allreduce_spec(static_cast<int64_t>(*bytes / 4)));
    probe.took(static_cast<Nanos>(1e3 * (price.latency_us + price.transfer_us)));
  }
  return probe.bucket_bytes(request.fusion_bytes);
}

int64_t bucket_bytes_of(const Request& request, const Cluster& cluster) {
  if (request.bucket_bytes > 0) return request.bucket_bytes;
  const Layout layout = measured_layout(cluster);
  if (!layout.gpus.empty())
    if (const int64_t found = nccl_bucket_bytes(layout, cluster.costs, request); found > 0) return found;
  return schedule::plan_bucket_bytes(layout.topology, request.algorithm);
}

// The factors of each rank: [steps].
std::vector<std::vector<double>> slowness_of(const Case& one, const Layout& layout, unsigned causes,
                                             int steps) {
  const Request& request = one.request;
  const bool has_jitter = (causes & kJitter) != 0, has_slowdown = (causes & kSlowdown) != 0;
  std::vector<std::vector<double>> slower;
  for (Rank rank = 0; rank < one.workers; ++rank) {
    slower.push_back(noise_of(has_jitter ? request.noise : Noise{}, rank, steps));
    const double speed = one.cluster.hosts[layout.topology.host_of[rank]].speed;
    const double slow = has_slowdown && one.workers > 1 ? 1 + one.cluster.costs.slow_share : 1;
    const double late = has_jitter ? bench::Faults{.late = request.late}.slowness(rank) : 1;
    for (double& factor : slower.back()) factor *= slow * late / speed;
  }
  return slower;
}

struct Run {
  JobResult job;
  std::vector<double> step_ms;  // without warm-up
};

Result<Run> run_case(const Case& one, unsigned causes, int steps) {
  const Request& request = one.request;
  Layout layout = measured_layout(one.cluster);
  const schedule::Topology chosen_for = layout.topology;
  if ((causes & kLinks) == 0) unbind_links(layout);
  const Costs costs = (causes & kHosts) == 0 ? none_of(one.cluster.costs) : one.cluster.costs;
  if ((causes & kHosts) == 0) layout.topology.reduce_gbps = 1e6;
  JobOptions options;
  EngineOptions& engine = options.engine;
  engine.ranks = one.workers;
  engine.plans = request.plans;
  engine.channels = layout.topology.is_single_host() ? 1 : 2;
  engine.fusion_bytes = request.fusion_bytes / static_cast<int64_t>(engine.channels);
  engine.bucket_bytes = one.bucket_bytes;
  if (!layout.gpus.empty()) engine.alone_bytes = 0;  // packing costs next to nothing
  engine.cycle_time = static_cast<Nanos>(request.cycle_ms * 1e6);
  engine.control = static_cast<Nanos>(costs.control_us * 1e3);
  engine.flight =
      static_cast<Nanos>(1e3 * (layout.topology.is_single_host() ? layout.topology.local.latency_us
                                                                 : layout.topology.remote.latency_us));
  options.steps = kWarmUp + steps;
  options.submit = static_cast<Nanos>(costs.submit_us * 1e3);
  options.wake = static_cast<Nanos>(costs.wake_us * 1e3);
  options.slower = slowness_of(one, layout, causes, options.steps);
  const CallOptions call_options{.algorithm = request.algorithm,
                                 .chunk_bytes = request.chunk_bytes,
                                 .channels = engine.channels,
                                 .chosen_for = chosen_for};
  const auto run = [&]() -> Result<JobResult> {
    if (request.servers.strategy != Strategy::kAllreduce)
      return run_servers(one.program, options, request.servers, {layout, costs, chosen_for});
    const std::unique_ptr<Calls> calls = is_by_message(request, engine.ranks, one.cluster)
                                             ? make_message_calls(layout, costs, call_options)
                                             : make_priced_calls(layout, costs, call_options);
    return run_job(one.program, options, *calls);
  };
  Result<JobResult> result = run();
  if (!result.is_ok()) return result.status();
  Run done{.job = std::move(result).value(), .step_ms = {}};
  std::vector<Nanos> ends(static_cast<size_t>(options.steps));
  for (const std::vector<StepTimes>& of_rank : done.job.steps)
    for (size_t step = 0; step < ends.size(); ++step) ends[step] = std::max(ends[step], of_rank[step].ended);
  for (size_t step = kWarmUp; step < ends.size(); ++step)
    done.step_ms.push_back(static_cast<double>(ends[step] - ends[step - 1]) / 1e6);
  return done;
}

double busiest(const std::vector<double>& busy) { return busy.empty() ? 0 : std::ranges::max(busy); }

void take_use(const Run& run, const Cluster& cluster, Prediction& row) {
  Nanos whole = 0;
  for (const std::vector<StepTimes>& of_rank : run.job.steps) whole = std::max(whole, of_rank.back().ended);
  const double us = static_cast<double>(whole) / 1e3;
  const CallsUse& use = run.job.use;
  row.link_busy = std::max(busiest(use.busy_us.port_out), busiest(use.busy_us.port_in)) / us;
  const Layout layout = lay_out(cluster);
  for (size_t i = 0; i < use.busy_us.cores.size(); ++i) {
    const double cores = layout.machine_of.empty() ? 1 : layout.cores[i];
    row.core_busy = std::max(row.core_busy, use.busy_us.cores[i] / (us * cores));
  }
  row.algorithms = use.algorithms;
}

// The Shapley values: how much longer a step becomes with each cause, on average over all orders of adding
// them.
Result<Losses> split_losses(const Case& one, int steps) {
  std::array<double, kAllCauses + 1> step_ms{};
  for (unsigned causes = 0; causes <= kAllCauses; ++causes) {
    if (const unsigned there = causes & one.causes(); there != causes) {
      step_ms[causes] = step_ms[there];  // a lesser number, so it has run
      continue;
    }
    const Result<Run> run = run_case(one, causes, steps);
    if (!run.is_ok()) return run.status();
    step_ms[causes] = std::accumulate(run.value().step_ms.begin(), run.value().step_ms.end(), 0.0) / steps;
  }
  const auto share_of = [&](unsigned cause) {
    double share = 0;
    for (unsigned others = 0; others <= kAllCauses; ++others) {
      if ((others & cause) != 0) continue;
      constexpr std::array<double, 4> kWeights = {1.0 / 4, 1.0 / 12, 1.0 / 12,
                                                  1.0 / 4};  // by how many others there are
      share +=
          kWeights[static_cast<size_t>(std::popcount(others))] * (step_ms[others | cause] - step_ms[others]);
    }
    return share;
  };
  return Losses{.links_ms = share_of(kLinks),
                .hosts_ms = share_of(kHosts),
                .jitter_ms = share_of(kJitter),
                .slowdown_ms = share_of(kSlowdown)};
}

std::string bottleneck_of(const Prediction& row) {
  if (row.efficiency > 0.97) return "computing";
  if (row.core_busy > 0.85 && row.core_busy > row.link_busy) return "cores";
  if (row.link_busy > 0.85) return "links";
  const Losses& losses = row.losses;
  if (!row.has_losses) return row.core_busy > row.link_busy ? "cores" : "links";
  const std::array<std::pair<double, const char*>, 4> causes = {{{losses.links_ms, "links"},
                                                                 {losses.hosts_ms, "hosts"},
                                                                 {losses.jitter_ms, "jitter"},
                                                                 {losses.slowdown_ms, "slowdown"}}};
  return std::ranges::max_element(causes, {}, [](const auto& cause) { return cause.first; })->second;
}

Result<Prediction> predict(const Request& request, const Changes& changes) {
  Result<Cluster> cluster = change(request.cluster, changes);
  if (cluster.is_ok()) cluster = order_hosts(std::move(cluster).value(), request.host_order);
  if (!cluster.is_ok()) return cluster.status();
  if (const Status status = bench::Faults{.late = request.late}.check(cluster.value().ranks(), 1, 0);
      !status.is_ok())
    return status;
  const int workers = cluster.value().ranks();
  if (const Status status = check_servers(request.servers, workers); !status.is_ok()) return status;
  const bool is_message =
      request.servers.strategy != Strategy::kAllreduce || is_by_message(request, workers, cluster.value());
  const int hosts = static_cast<int>(cluster.value().hosts.size());
  Case one{.request = request,
           .cluster = with_servers(std::move(cluster).value(), request.servers, workers),
           .workers = workers,
           .program = program_of(request.model, request.cross_step)};
  one.bucket_bytes = bucket_bytes_of(request, one.cluster);
  const Result<Run> run = run_case(one, kAllCauses, request.steps);
  if (!run.is_ok()) return run.status();
  Prediction row;
  row.ranks = workers;
  row.hosts = hosts;
  if (!request.host_order.empty() && request.host_order != "given")
    for (int host = 0; host < hosts; ++host) row.host_order.push_back(one.cluster.hosts[host].name);
  if (request.servers.strategy != Strategy::kAllreduce) row.servers = request.servers.count.of(workers);
  row.detail = is_message ? Detail::kMessage : Detail::kCall;
  row.compute_ms = request.model.compute_ms;
  row.step_ms = quantile(run.value().step_ms, 0.5);
  row.step_p5_ms = quantile(run.value().step_ms, 0.05);
  row.step_p95_ms = quantile(run.value().step_ms, 0.95);
  row.efficiency = row.compute_ms / row.step_ms;
  row.steps = request.steps;
  row.bucket_bytes = one.bucket_bytes;
  row.plans_begun = run.value().job.plans_begun;
  const auto a_step = [&](const std::vector<int64_t>& sums) {
    return static_cast<double>(sums.back() - sums[kWarmUp - 1]) / request.steps;
  };
  row.calls = a_step(run.value().job.calls);
  row.messages = a_step(run.value().job.messages);
  take_use(run.value(), one.cluster, row);
  if (request.split) {
    const Result<Losses> losses =
        split_losses(one, std::min(request.steps, std::clamp(512 / row.ranks, 2, 8)));
    if (!losses.is_ok()) return losses.status();
    row.losses = losses.value();
    row.has_losses = true;
  }
  row.bottleneck = bottleneck_of(row);
  return row;
}

}  // namespace

Result<Report> simulate(const Request& request) {
  Report report{.request = request, .rows = {}};
  std::vector<std::optional<int>> worlds(request.ranks.begin(), request.ranks.end());
  if (worlds.empty()) worlds.emplace_back();
  for (const std::optional<int>& ranks : worlds) {
    Changes changes = request.changes;
    changes.ranks = ranks;
    Result<Prediction> row = predict(request, changes);
    if (!row.is_ok()) return row.status();
    report.rows.push_back(std::move(row).value());
  }
  return report;
}

}  // namespace rueda::simulate
