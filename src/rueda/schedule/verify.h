// Proves a set of schedules right without running them: all ranks are executed with formulas in place of
// numbers. Checked, with input and output apart and (where a call may do that) as one memory:
//   - every output element is written on every rank, with every contribution exactly once, in the topology's
//     canonical order where that is claimed, and equal on all ranks; scaled and rounded once;
//   - nothing unwritten is read, slices stay in bounds, types fit the spaces;
//   - two steps that touch the same elements, one of them writing, are ordered by `after`;
//   - the i-th receive from a peer meets an i-th send of the same size and wire type;
//   - an allreduce of two ranks overwrites nothing before both have begun: it may be taken back until then;
//   - nothing deadlocks, even where a send completes only when it is received. (Buffering only lets steps
//     complete earlier, and that never stops another step: nothing deadlocks on a buffering wire either.)
// For tests and tools. Pure; any thread.
#pragma once

#include <span>
#include <vector>

#include "rueda/base/status.h"
#include "rueda/schedule/algorithm.h"

namespace rueda::schedule {

struct RankTotals {
  int64_t steps = 0;
  int64_t messages_sent = 0;
  int64_t bytes_sent = 0;
  int64_t bytes_received = 0;
};

struct Report {
  int64_t rounds = 0;  // messages that must follow one another: the "steps" of the literature
  std::vector<RankTotals> ranks;
};

Result<Report> verify(const Spec& spec, const Topology& topology, const Algorithm& algorithm);

// schedules: one per rank. is_order_preserving: they must use the canonical order.
Result<Report> verify_schedules(const Spec& spec, const Topology& topology,
                                std::span<const Schedule> schedules, bool is_order_preserving);

}  // namespace rueda::schedule
