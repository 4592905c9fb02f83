#include "rueda/schedule/price.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

#include "rueda/schedule/traffic.h"

namespace rueda::schedule {

Result<std::vector<double>> finish_times_us(const Spec& spec, const Topology& topology,
                                            const Network& network, std::span<const Schedule> schedules,
                                            std::span<const double> starts_us) {
  const auto ranks = static_cast<size_t>(topology.size());
  if (schedules.size() != ranks || starts_us.size() != ranks)
    return Status{Code::kInvalidArgument, "a price needs one schedule and one start for each rank"};
  if (!std::ranges::all_of(starts_us, [](double start) { return std::isfinite(start) && start >= 0; }))
    return Status{Code::kInvalidArgument, "the start of a rank must be at least 0 microseconds"};
  if (Status status = check_network(network, topology.host_count()); !status.is_ok()) return status;
  if (ranks == 0) return std::vector<double>();
  const auto plan =
      std::make_shared<const TrafficPlan>(spec, std::vector<Schedule>(schedules.begin(), schedules.end()));
  Traffic traffic(network, topology.host_of, topology.reduce_gbps);
  const std::vector<Traffic::Ended> ended = run_alone(traffic, plan, starts_us);
  if (ended.size() < ranks)
    return Status{Code::kInternal,
                  std::string(schedules[0].name) + ": the schedules deadlock, so they have no price"};
  std::vector<double> done(ranks);
  for (const Traffic::Ended& one : ended) done[one.member] = one.at_us;
  return done;
}

Result<double> price_us(const Spec& spec, const Topology& topology, const Network& network,
                        std::span<const Schedule> schedules, std::span<const double> starts_us) {
  const auto done = finish_times_us(spec, topology, network, schedules, starts_us);
  if (!done.is_ok()) return done.status();
  return done.value().empty() ? 0 : std::ranges::max(done.value());
}

Result<double> price_us(const Spec& spec, const Topology& topology, std::span<const Schedule> schedules) {
  const std::vector<double> starts(static_cast<size_t>(topology.size()), 0);
  return price_us(spec, topology, Network::uniform(topology), schedules, starts);
}

}  // namespace rueda::schedule
