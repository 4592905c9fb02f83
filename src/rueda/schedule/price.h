// Virtual time: how long a set of schedules would take on a topology. A rank sends one message and receives
// one message at a time; the ranks of a host share its port to other hosts, which slows down when several
// hosts send to one; a rank reduces one thing at a time; wires buffer what comes early. It shows what the
// closed formulas of cost_us leave out: pipelining, waiting, uneven ranks, uneven networks. Pure; any thread.
#pragma once

#include <span>
#include <vector>

#include "rueda/base/status.h"
#include "rueda/schedule/network.h"
#include "rueda/schedule/step.h"
#include "rueda/schedule/topology.h"

namespace rueda::schedule {

// [ranks] microseconds when each rank is done, on one clock with starts_us [ranks], when each of them begins.
// Links are the network's, the rest of the costs the topology's. Schedules that deadlock are an error.
Result<std::vector<double>> finish_times_us(const Spec& spec, const Topology& topology,
                                            const Network& network, std::span<const Schedule> schedules,
                                            std::span<const double> starts_us);

// Microseconds on that clock until the last rank is done.
Result<double> price_us(const Spec& spec, const Topology& topology, const Network& network,
                        std::span<const Schedule> schedules, std::span<const double> starts_us);
// All ranks start at 0 on the uniform network of the topology.
Result<double> price_us(const Spec& spec, const Topology& topology, std::span<const Schedule> schedules);

}  // namespace rueda::schedule
