#include "simulate/call_prices.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "rueda/backend/local/cost.h"
#include "rueda/base/check.h"
#include "rueda/schedule/algorithm.h"

namespace rueda::simulate {

using schedule::Traffic;
using schedule::TrafficPlan;

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
  const auto [at, is_new] = known_.try_emplace({spec.what, spec.count});
  if (is_new) at->second = layout_.topology.is_single_host() ? price_in_shared_memory(spec) : price(spec);
  return at->second;
}

std::shared_ptr<const TrafficPlan> CallPrices::plan_of(const schedule::Spec& spec) {
  std::shared_ptr<const TrafficPlan>& plan = plans_[{spec.what, spec.count}];
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
  std::vector<schedule::Schedule> schedules;
  for (Rank rank = 0; rank < layout_.topology.size(); ++rank) {
    schedules.push_back(algorithm.build(spec, layout_.topology, rank));
    schedules.back().name = algorithm.name;
  }
  return std::make_shared<const TrafficPlan>(spec, std::move(schedules));
}

// All ranks begin at 0.
double CallPrices::run(const schedule::Algorithm& algorithm, const schedule::Spec& spec,
                       Traffic::Use& busy_us) const {
  const schedule::Topology& topology = layout_.topology;
  Traffic traffic(layout_.network, topology.host_of, topology.reduce_gbps, core_costs(layout_, costs_));
  std::vector<Rank> members(static_cast<size_t>(topology.size()));
  std::iota(members.begin(), members.end(), 0);
  const Traffic::CallKey call = traffic.open(build(algorithm, spec), members);
  for (const Rank member : members) traffic.join(call, member, 0);
  std::vector<Traffic::Ended> ended;
  while (std::isfinite(traffic.next_us())) traffic.advance(ended);
  double last = 0;
  for (const Traffic::Ended& one : ended) last = std::max(last, one.at_us);
  busy_us = traffic.use();
  return last;
}

CallPrice CallPrices::price(const schedule::Spec& spec) const {
  const schedule::Algorithm& algorithm = algorithm_for(spec);
  CallPrice price;
  price.algorithm = algorithm.name;
  schedule::Spec small = spec;
  small.count = std::min<int64_t>(spec.count, layout_.topology.size());
  Traffic::Use ignored;
  price.latency_us = run(algorithm, small, ignored);
  price.transfer_us = std::max(0.0, run(algorithm, spec, price.busy_us) - price.latency_us);
  return price;
}

// As backend/local runs it where tensors lie in shared buffers.
CallPrice CallPrices::price_in_shared_memory(const schedule::Spec& spec) const {
  const auto bytes = static_cast<size_t>(spec.count) * size_of(spec.dtype);
  const auto ranks = static_cast<size_t>(layout_.topology.size());
  const backend::LocalAlgorithm algorithm = backend::local_algorithm(bytes, ranks, true);
  const backend::MemoryCost memory = backend::memory_cost(layout_.topology);
  CallPrice price;
  price.algorithm = name_of(algorithm);
  price.latency_us = backend::local_us(0, ranks, algorithm, memory);
  price.transfer_us = backend::local_us(bytes, ranks, algorithm, memory) - price.latency_us;
  return price;
}

}  // namespace rueda::simulate
