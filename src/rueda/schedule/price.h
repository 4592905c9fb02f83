// Virtual time: how long a set of schedules would take on a topology. A rank sends one message and receives
// one message at a time; the ranks of a host share its link to other hosts, which slows down when several
// hosts send to one; a rank reduces one thing at a time; wires buffer what comes early. It shows what the
// closed formulas of cost_us leave out: pipelining, waiting, uneven ranks. Pure; any thread.
#pragma once

#include <span>

#include "rueda/base/status.h"
#include "rueda/schedule/step.h"
#include "rueda/schedule/topology.h"

namespace rueda::schedule {

// Microseconds until the last rank is done, all starting together. Schedules that deadlock are an error.
Result<double> price_us(const Spec& spec, const Topology& topology, std::span<const Schedule> schedules);

}  // namespace rueda::schedule
