#include "simulate/runs.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include "rueda/backend/nccl/probe.h"
#include "rueda/schedule/bucket_bytes.h"
#include "rueda/schedule/token_bucket.h"
#include "simulate/call_prices.h"
#include "simulate/quantile.h"
#include "simulate/specs.h"

namespace rueda::simulate {
namespace {

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
  layout.network.bursts.clear();
  layout.network.tiers.clear();
  layout.topology.remote = {.latency_us = 0, .bandwidth_gbps = kAnyRate};
  if (!layout.gpus.empty()) layout.topology.local = layout.topology.remote;
}

// Links as the library measures them at init: from the first host to the next, with so many bytes each way
// (runtime/calibrate).
Layout measured_layout(const Cluster& cluster) {
  constexpr double kMeasuredBytes = 256 << 10;
  Layout layout = lay_out(cluster);
  const schedule::Network& network = layout.network;
  if (network.port_gbps.size() < 2) return layout;
  schedule::LinkCost& seen = layout.topology.remote = network.link(0, 1);
  for (int32_t host = 0; host < 2 && !network.bursts.empty(); ++host) {
    schedule::TokenBucket port(network.port_gbps[host], network.bursts[host].bytes,
                               network.bursts[host].gbps);
    seen.bandwidth_gbps = std::min(seen.bandwidth_gbps, kMeasuredBytes / port.pass(kMeasuredBytes, 0) / 1e3);
  }
  return layout;
}

// As the library finds it out with NCCL itself.
int64_t nccl_bucket_bytes(const Layout& layout, const Costs& costs, const Request& request) {
  CallPrices prices(layout, costs, {.algorithm = request.algorithm, .chosen_for = layout.topology});
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
  if (layout.gpus.empty()) return schedule::plan_bucket_bytes(layout.topology, request.algorithm);
  const int64_t found = nccl_bucket_bytes(layout, cluster.costs, request);
  return found > 0 ? found : schedule::plan_bucket_bytes(layout.topology, "");
}

// Calls that run at once.
int channels_of(const Cluster& cluster) { return cluster.hosts.size() == 1 ? 1 : 2; }

// Of one call: those that run at once share the fusion threshold.
int64_t fusion_limit(const Case& one) { return one.request.fusion_bytes / channels_of(one.cluster); }

// The factors of each rank: [steps].
std::vector<std::vector<double>> slowness_of(const Case& one, const Layout& layout, unsigned causes,
                                             int steps) {
  const Request& request = one.request;
  const bool has_jitter = (causes & kJitter) != 0, has_slowdown = (causes & kSlowdown) != 0;
  std::vector<std::vector<double>> slower;
  for (Rank rank = 0; rank < one.workers; ++rank) {
    slower.push_back(noise_of(has_jitter ? request.noise : Noise{}, rank, steps));
    const size_t host = layout.topology.host_of[rank];
    const double speed = has_jitter ? one.cluster.hosts[host].speed : one.usual_speed();
    const double slow = has_slowdown && one.workers > 1 ? 1 + one.cluster.costs.slow_share : 1;
    const double late = has_jitter ? bench::Faults{.late = one.late}.slowness(rank) : 1;
    for (double& factor : slower.back()) factor *= slow * late / speed;
  }
  return slower;
}

// As the library has it: predicted costs of a call, and of what its engine does for each.
control::Tuner::Options tuner_of(const Case& one, const Layout& layout, const EngineOptions& engine) {
  control::Tuner::Options tuner{.is_on = one.tuned_steps > 0,
                                .may_change_bits = true,
                                .settle = 0,
                                .first = one.way,
                                .most_passes = one.tuned_steps};
  if (!tuner.is_on && one.way == control::BucketWay{}) return tuner;
  tuner.ways.costs.packing_ns = schedule::kPackingNs;
  tuner.ways.costs.most_bytes = engine.fusion_bytes;
  if (layout.gpus.empty() && !layout.topology.is_single_host()) {
    tuner.ways.costs.call_us = schedule::bucket_cost(layout.topology, one.request.algorithm);
    if (one.request.algorithm.empty())
      for (const schedule::BucketAlgorithm& each : schedule::bucket_algorithms(layout.topology))
        tuner.ways.algorithms.push_back({.number = each.number, .name = each.name, .call_us = each.call_us});
    // Without some of what is slow there may be fewer.
    if (tuner.first.algorithm > std::ssize(tuner.ways.algorithms)) tuner.first.algorithm = 0;
    if (one.request.chunk_bytes == Request().chunk_bytes) tuner.ways.chunk_bytes = one.request.chunk_bytes;
    return tuner;
  }
  const CallOptions call{.algorithm = layout.gpus.empty() ? "" : one.request.algorithm,
                         .chosen_for = layout.topology};
  tuner.ways.costs.call_us =
      [prices = std::make_shared<CallPrices>(layout, one.cluster.costs, call)](int64_t bytes) {
        const CallPrice& price = prices->of(allreduce_spec(std::max<int64_t>(bytes / 4, 1)));
        return price.latency_us + price.transfer_us;
      };
  return tuner;
}

// The ends of all steps on the rank that ends last.
std::vector<Nanos> ends_of(const JobResult& job) {
  std::vector<Nanos> ends(job.steps.front().size());
  for (const std::vector<StepTimes>& of_rank : job.steps)
    for (size_t step = 0; step < ends.size(); ++step) ends[step] = std::max(ends[step], of_rank[step].ended);
  return ends;
}

}  // namespace

bool is_by_message(const Request& request, int ranks, const Cluster& cluster) {
  if (cluster.hosts.size() == 1 || !cluster.gpus.empty()) return false;
  return request.detail == Detail::kMessage ||
         (request.detail == Detail::kAuto && ranks <= kMostMessageRanks);
}

Case::Case(const Request& asked, Cluster on, std::vector<bench::LateRank> late_ranks)
    : request(asked),
      cluster(with_servers(on, asked.servers, on.ranks())),
      late(std::move(late_ranks)),
      workers(on.ranks()),
      program(program_of(asked.model, asked.cross_step)),
      bucket_bytes(bucket_bytes_of(asked, cluster)) {}

int64_t Case::fused_bytes() const {
  if (request.servers.strategy != Strategy::kAllreduce) return 0;
  const int64_t most = fusion_limit(*this);
  // Tensors of steps that cross have priorities, and so no plans.
  if (request.cross_step) return std::min(most, EngineOptions().priority_bytes);
  return request.plans ? std::min(most, bucket_bytes) : most;
}

unsigned Case::causes() const {
  const Noise& noise = request.noise;
  const auto is_usual = [usual = usual_speed()](const Host& host) { return host.speed == usual; };
  const bool has_jitter =
      noise.step != 0 || noise.rank != 0 || !late.empty() || !std::ranges::all_of(cluster.hosts, is_usual);
  const bool has_slowdown = workers > 1 && cluster.costs.slow_share != 0;
  return kLinks | kHosts | (has_jitter ? kJitter : 0U) | (has_slowdown ? kSlowdown : 0U);
}

double Case::usual_speed() const {
  std::vector<double> speeds;
  for (const Host& host : cluster.hosts) speeds.push_back(host.speed);
  return quantile(std::move(speeds), 0.5);
}

double CaseRun::mean_ms() const {
  return std::accumulate(step_ms.begin(), step_ms.end(), 0.0) / static_cast<double>(step_ms.size());
}

Result<CaseRun> run_case(const Case& one, unsigned causes, int steps) {
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
  engine.channels = static_cast<size_t>(channels_of(one.cluster));
  engine.fusion_bytes = fusion_limit(one);
  engine.bucket_bytes = one.bucket_bytes;
  // Packing costs next to nothing on GPUs, and shared memory needs none (Backend::copies_fused).
  if (!layout.gpus.empty() || layout.topology.is_single_host()) engine.alone_bytes = 0;
  engine.cycle_time = static_cast<Nanos>(request.cycle_ms * 1e6);
  engine.control = static_cast<Nanos>(costs.control_us * 1e3);
  engine.flight =
      static_cast<Nanos>(1e3 * (layout.topology.is_single_host() ? layout.topology.local.latency_us
                                                                 : layout.topology.remote.latency_us));
  const int warm_up = one.warm_up();
  engine.tuner = tuner_of(one, layout, engine);
  options.steps = warm_up + steps;
  options.counted_from = warm_up;
  options.submit = static_cast<Nanos>(costs.submit_us * 1e3);
  options.wake = static_cast<Nanos>(costs.wake_us * 1e3);
  options.slower = slowness_of(one, layout, causes, options.steps);
  if (request.watch)
    options.ended = [&](int step) {
      request.watch({.ranks = one.workers,
                     .is_of_losses = causes != kAllCauses || steps < request.steps,
                     .step = step,
                     .steps = options.steps});
    };
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
  CaseRun done{.job = std::move(result).value(), .step_ms = {}};
  const std::vector<Nanos> ends = ends_of(done.job);
  for (auto step = static_cast<size_t>(warm_up); step < ends.size(); ++step)
    done.step_ms.push_back(static_cast<double>(ends[step] - ends[step - 1]) / 1e6);
  return done;
}

}  // namespace rueda::simulate
