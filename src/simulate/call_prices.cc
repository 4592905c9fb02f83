#include "simulate/call_prices.h"

#include <algorithm>
#include <cmath>
#include <ranges>

#include "rueda/backend/local/cost.h"
#include "rueda/base/check.h"
#include "rueda/schedule/algorithm.h"
#include "simulate/nccl_price.h"
#include "simulate/specs.h"

namespace rueda::simulate {

using schedule::Traffic;
using schedule::TrafficPlan;

namespace {

constexpr size_t kMostMessages = 50'000;  // of a call that is priced by its messages: some 0.1 s
constexpr size_t kFewRanks = 32;
constexpr size_t kFewRanksWithTiers = 128;

// Switches over as many hosts as they are, where these hosts have two of them, and otherwise over half of
// what is above them: what crosses an uplink depends on how many hosts are below it. Where one switch is over
// all hosts, it stays so.
void shrink(std::vector<schedule::Tier>& tiers, size_t hosts) {
  size_t above = hosts;
  for (schedule::Tier& tier : std::views::reverse(tiers)) {
    const auto full = static_cast<size_t>(std::ranges::count(tier.switch_of, 0));
    size_t size = full == tier.switch_of.size() ? above : std::min(full, std::max<size_t>(1, above / 2));
    while (above % size != 0) --size;
    tier.switch_of.resize(hosts);
    for (size_t host = 0; host < hosts; ++host) tier.switch_of[host] = static_cast<int32_t>(host / size);
    const double uplink = tier.uplink_gbps.front() * static_cast<double>(size) / static_cast<double>(full);
    tier.uplink_gbps.assign(hosts / size + 1, uplink);
    above = size;
  }
}

// Two switches of each tier, where that is not too much.
size_t few_ranks(const Layout& layout) {
  const std::vector<int32_t>& host_of = layout.topology.host_of;
  size_t ranks = kFewRanks;
  for (const schedule::Tier& tier : layout.network.tiers) {
    const auto of_two = static_cast<size_t>(
        std::ranges::count_if(host_of, [&](int32_t host) { return tier.switch_of[host] < 2; }));
    if (of_two <= kFewRanksWithTiers) ranks = std::max(ranks, of_two);
  }
  return ranks;
}

// The first hosts, at least two of them, with so many ranks together.
Layout first_hosts(const Layout& layout, size_t ranks) {
  Layout few = layout;
  std::vector<int32_t>& host_of = few.topology.host_of;
  const auto is_of_two = [&](size_t count) { return host_of[count - 1] >= 1; };
  while (host_of.size() > ranks && is_of_two(host_of.size() - 1)) host_of.pop_back();
  const auto hosts = static_cast<size_t>(host_of.back()) + 1;
  const size_t all = layout.network.port_gbps.size();
  few.network.port_gbps.resize(hosts);
  few.network.links.clear();
  for (size_t from = 0; from < hosts; ++from)
    for (size_t to = 0; to < hosts; ++to) few.network.links.push_back(layout.network.links[from * all + to]);
  if (!few.machine_of.empty()) few.machine_of.resize(hosts);
  shrink(few.network.tiers, hosts);
  return few;
}

// What one rank takes of the others, or adds up, from their shared buffers.
double shared_memory_us(const schedule::Spec& spec, double ranks, const backend::MemoryCost& memory) {
  const double bytes = static_cast<double>(spec.count) * static_cast<double>(size_of(spec.dtype));
  switch (spec.what) {
    case Collective::kAllgather:
      return bytes * (ranks - 1) / (memory.copy_gbps * 1e3);
    case Collective::kBroadcast:
      return bytes / (memory.copy_gbps * 1e3);
    case Collective::kReducescatter:
      return bytes * (ranks - 1) / ranks / (memory.reduce_gbps * 1e3);
    default:
      return bytes * (ranks - 1) / ranks / (memory.copy_gbps * 1e3);
  }
}

}  // namespace

schedule::CoreCosts core_costs(const Layout& layout, const Costs& costs) {
  return {.message_us = costs.message_us,
          .byte_ns = costs.byte_ns,
          .machine_of = layout.machine_of,
          .cores = layout.cores};
}

CallPrices::CallPrices(const Layout& layout, const Costs& costs, const CallOptions& options)
    : layout_(layout), costs_(costs), options_(options) {
  layout_.topology.chunk_bytes = options_.chosen_for.chunk_bytes = options_.chunk_bytes;
}

const CallPrice& CallPrices::of(const schedule::Spec& spec) {
  const auto [at, is_new] = known_.try_emplace(key_of(spec));
  if (!is_new) return at->second;
  if (!layout_.gpus.empty())
    at->second = price_by_nccl(spec);
  else
    at->second = layout_.topology.is_single_host() ? price_in_shared_memory(spec) : price(spec);
  return at->second;
}

std::shared_ptr<const TrafficPlan> CallPrices::plan_of(const schedule::Spec& spec) {
  std::shared_ptr<const TrafficPlan>& plan = plans_[key_of(spec)];
  if (!plan) plan = build(algorithm_for(spec), spec);
  return plan;
}

const schedule::Algorithm& CallPrices::algorithm_for(const schedule::Spec& spec) const {
  const auto choice = schedule::choose(spec, options_.chosen_for, options_.algorithm);
  RUEDA_CHECK(choice.is_ok(), "an allreduce always has an algorithm");
  return *choice.value().algorithm;
}

std::shared_ptr<const TrafficPlan> CallPrices::build(const schedule::Algorithm& algorithm,
                                                     const schedule::Spec& spec) const {
  const schedule::Topology topology = schedule::tuned_for(spec, layout_.topology);
  std::vector<schedule::Schedule> schedules;
  for (Rank rank = 0; rank < layout_.topology.size(); ++rank) {
    schedules.push_back(algorithm.build(spec, topology, rank));
    schedules.back().name = algorithm.name;
  }
  return std::make_shared<const TrafficPlan>(spec, std::move(schedules));
}

// About as many messages as all ranks send.
size_t CallPrices::messages_of(const schedule::Algorithm& algorithm, const schedule::Spec& spec) const {
  const auto is_send = [](const schedule::Step& step) { return step.kind == schedule::StepKind::kSend; };
  const schedule::Schedule one = algorithm.build(spec, schedule::tuned_for(spec, layout_.topology), 0);
  return static_cast<size_t>(std::ranges::count_if(one.steps, is_send)) * layout_.topology.host_of.size();
}

// The ranks begin within the time of a message, as they do after a start barrier beside another call. Calls
// that all ranks began at the same instant would go hand in hand: two at once took an eighth less time than
// they do in jobs.
CallPrices::Run CallPrices::run(const schedule::Algorithm& algorithm, const schedule::Spec& spec,
                                size_t calls) const {
  constexpr size_t kStride = 7;  // neighbours in a ring or a hypercube do not begin one after the other
  const schedule::Topology& topology = layout_.topology;
  const double message_us = topology.remote.latency_us + static_cast<double>(options_.chunk_bytes) /
                                                             (topology.remote.bandwidth_gbps * 1e3);
  const size_t ranks = topology.host_of.size();
  Traffic traffic(layout_.network, topology.host_of, topology.reduce_gbps, core_costs(layout_, costs_));
  std::vector<double> starts(ranks);
  for (size_t rank = 0; rank < ranks; ++rank)
    starts[rank] = message_us * static_cast<double>(rank * kStride % ranks) / static_cast<double>(ranks);
  Run run;
  for (const Traffic::Ended& one : run_alone(traffic, build(algorithm, spec), starts, calls))
    run.us = std::max(run.us, one.at_us);
  if (ranks > 0) run.us -= std::ranges::max(starts);
  run.busy_us = traffic.use();
  return run;
}

CallPrice CallPrices::price(const schedule::Spec& spec) {
  const schedule::Algorithm& algorithm = algorithm_for(spec);
  CallPrice price;
  const auto ranks = static_cast<int64_t>(layout_.topology.size());
  const schedule::Spec small = with_counts(spec, static_cast<size_t>(ranks), [&](int64_t count) {
    return std::min(count, spec.counts.empty() ? ranks : 1);
  });
  if (messages_of(algorithm, spec) > kMostMessages) {
    price = price_as_on_fewer_hosts(algorithm, spec, small);
  } else {
    price = price_by_messages(algorithm, spec, small);
  }
  price.algorithm = algorithm.name;
  return price;
}

// Two calls at once share what is busiest, but they also wait for each other's messages at many places.
CallPrice CallPrices::price_by_messages(const schedule::Algorithm& algorithm, const schedule::Spec& spec,
                                        const schedule::Spec& small) const {
  CallPrice price;
  price.latency_us = run(algorithm, small, 1).us;
  Run whole = run(algorithm, spec, 1);
  price.transfer_us = std::max(0.0, whole.us - price.latency_us);
  const double half_of_two = (run(algorithm, spec, 2).us - price.latency_us) / 2;
  price.busiest_us = std::min(std::max(half_of_two, busiest_of(whole.busy_us)), price.transfer_us);
  price.busy_us = std::move(whole.busy_us);
  return price;
}

double CallPrices::busiest_of(const Traffic::Use& use) const {
  double most = 0;
  for (const std::vector<double>* ports : {&use.port_out, &use.port_in, &use.uplinks})
    for (const double us : *ports) most = std::max(most, us);
  for (size_t i = 0; i < use.cores.size(); ++i)
    most = std::max(most, use.cores[i] / (layout_.machine_of.empty() ? 1 : layout_.cores[i]));
  return most;
}

// The formula of the cost model, times what the messages take beyond the formula where the first hosts alone
// run the call.
CallPrice CallPrices::price_as_on_fewer_hosts(const schedule::Algorithm& algorithm,
                                              const schedule::Spec& spec, const schedule::Spec& small) {
  if (!fewer_)
    fewer_ = std::make_unique<CallPrices>(first_hosts(layout_, few_ranks(layout_)), costs_, options_);
  const schedule::Topology& few = fewer_->layout_.topology;
  const auto formula = [&](const schedule::Spec& what, const schedule::Topology& topology) {
    return algorithm.cost_us(what, topology).value_or(0);
  };
  // What all exchange with all stays as large between two hosts as it is on all of them.
  const auto on_few = [&](const schedule::Spec& what) {
    return with_counts(what, few.host_of.size(), [](int64_t count) { return count; });
  };
  CallPrice price = fewer_->price_by_messages(algorithm, on_few(spec), on_few(small));
  const double busy_share = price.transfer_us > 0 ? price.busiest_us / price.transfer_us : 0;
  const double few_latency = formula(on_few(small), few), few_whole = formula(on_few(spec), few);
  if (few_latency > 0) price.latency_us *= formula(small, layout_.topology) / few_latency;
  if (few_whole > few_latency)
    price.transfer_us *=
        (formula(spec, layout_.topology) - formula(small, layout_.topology)) / (few_whole - few_latency);
  price.busiest_us = busy_share * price.transfer_us;
  return price;
}

// As backend/local runs it where tensors lie in shared buffers.
CallPrice CallPrices::price_in_shared_memory(const schedule::Spec& spec) const {
  const auto bytes = static_cast<size_t>(spec.count) * size_of(spec.dtype);
  const auto ranks = static_cast<size_t>(layout_.topology.size());
  const backend::LocalAlgorithm algorithm = backend::local_algorithm(bytes, ranks, true);
  const backend::MemoryCost memory = backend::memory_cost(layout_.topology);
  CallPrice price;
  price.latency_us = backend::local_us(0, ranks, algorithm, memory);
  if (spec.what == Collective::kAllreduce || spec.what == Collective::kBarrier) {
    price.algorithm = name_of(algorithm);
    price.transfer_us = backend::local_us(bytes, ranks, algorithm, memory) - price.latency_us;
  } else {
    price.algorithm = "registered";
    price.transfer_us = shared_memory_us(spec, layout_.topology.size(), memory);
  }
  price.busiest_us = price.transfer_us;
  return price;
}

// Ranks meet on the host before a call of a plan is launched; calls run one after the other on the stream.
CallPrice CallPrices::price_by_nccl(const schedule::Spec& spec) const {
  const schedule::Topology& topology = layout_.topology;
  NcclLinks links{.ranks = topology.size(),
                  .hosts = topology.host_count(),
                  .is_nvlink = layout_.gpus == "nvlink",
                  .within_gbps = topology.local.bandwidth_gbps};
  if (links.hosts > 1) links.network_gbps = std::ranges::min(layout_.network.port_gbps);
  for (const schedule::Tier& tier : layout_.network.tiers)  // a ring comes to each switch once
    links.network_gbps = std::min(links.network_gbps, std::ranges::min(tier.uplink_gbps));
  const NcclPrice nccl =
      nccl_call(spec.what, static_cast<double>(spec.count) * sizeof(float), links, options_.algorithm);
  CallPrice price;
  const double link_us = links.hosts > 1 ? topology.remote.latency_us : topology.local.latency_us;
  price.latency_us = nccl.latency_us + std::ceil(std::log2(links.ranks)) * link_us;
  price.transfer_us = price.busiest_us = nccl.transfer_us;
  price.algorithm = nccl.algorithm;
  if (links.hosts > 1) {
    price.busy_us.port_out.assign(layout_.network.port_gbps.size(), nccl.transfer_us);
    price.busy_us.port_in = price.busy_us.port_out;
  }
  return price;
}

}  // namespace rueda::simulate
