// Virtual time: how long a set of schedules would take on a topology. The rules: a rank sends one message at
// a time, receives one from its own host at a time, and reduces one thing at a time. The ranks of a host
// share its port to other hosts; the port slows down if many hosts send to it. Messages that arrive early
// are buffered.
// This includes what the formulas of cost_us leave out: pipelining, waiting, uneven ranks, uneven networks.
// Pure; any thread.
#pragma once

#include <span>
#include <vector>

#include "rueda/base/status.h"
#include "rueda/schedule/network.h"
#include "rueda/schedule/step.h"
#include "rueda/schedule/topology.h"

namespace rueda::schedule {

// Returns when each rank is done, in microseconds: [ranks], on the clock of starts_us [ranks], which says
// when each rank begins. The costs of links come from the network, all other costs from the topology. Fails
// if the schedules deadlock.
Result<std::vector<double>> finish_times_us(const Spec& spec, const Topology& topology,
                                            const Network& network, std::span<const Schedule> schedules,
                                            std::span<const double> starts_us);

// When the last rank is done, in microseconds on that clock.
Result<double> price_us(const Spec& spec, const Topology& topology, const Network& network,
                        std::span<const Schedule> schedules, std::span<const double> starts_us);
// All ranks start at 0 on the uniform network of the topology.
Result<double> price_us(const Spec& spec, const Topology& topology, std::span<const Schedule> schedules);

}  // namespace rueda::schedule
