// Proves that a set of schedules is right without running them: all ranks are executed with formulas
// instead of numbers. It checks the following, with input and output apart and, if a call may have that,
// as one memory:
//   - every output element is written on every rank, with every contribution exactly once, in the topology's
//     canonical order if that is claimed, and equal on all ranks; it is scaled and rounded once;
//   - nothing unwritten is read, slices stay in bounds, types fit the buffers;
//   - two steps that touch the same elements, one of them writing, are ordered by `after`;
//   - the i-th receive from a peer meets an i-th send of the same size and wire type;
//   - an allreduce of two ranks overwrites nothing before both have begun, so it may be cancelled until
//   then;
//   - nothing deadlocks, even if a send completes only when it is received. (Buffering lets steps complete
//     earlier and never stops another step, so nothing deadlocks on a transport that buffers either.)
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
