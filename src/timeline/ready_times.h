// When each tensor of a step is ready, in the time that a rank computes: the clock stands still while the
// program waits for a collective. Pure.
//
// A step begins when the program has its gradients, not with the mark of the step before: what the optimizer
// computes after the wait delays the next gradients and overlaps with no collective. A program that waits for
// nothing after its last gradient (cross_step) begins its steps with the marks.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "timeline/step_events.h"

namespace rueda::timeline {

struct ReadyTensor {
  Collective what = Collective::kAllreduce;
  int64_t bytes = 0;
  size_t first = 0;                   // among all tensors, in the order in which they came
  int64_t waited_for = 0;             // in so many steps the program did nothing else until it had the result
  std::vector<double> ready_ms = {};  // in the steps that have it
};

struct ReadyTimes {
  int64_t steps = 0;                // that were recorded whole
  std::vector<double> computed_ms;  // in each step that is used: all but the first ones, which warm up
  std::unordered_map<std::string, ReadyTensor>
      tensors;  // by name; one that comes again in a step: "name (2)"
};

// The steps that are left out at the beginning: memory, files and caches are new to them.
constexpr int64_t warm_ups_of(int64_t steps) { return steps / 10 > 3 ? steps / 10 : 3; }

// knows_waits: the program says when it waits. Otherwise it is taken to wait from its last tensor of a step
// to the end of the collectives, or of the step.
ReadyTimes ready_times_of(StepEvents events, bool knows_waits);

}  // namespace rueda::timeline
