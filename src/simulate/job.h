// A training job under virtual time: the loop of every rank, on the engines of engines.h. Deterministic. No
// I/O, no clock, no threads.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "rueda/base/status.h"
#include "simulate/engines.h"
#include "simulate/program.h"

namespace rueda::simulate {

struct JobOptions {
  EngineOptions engine;
  int steps = 1;
  int counted_from = 0;                     // the step from which on algorithms are counted
  Nanos submit = 2'000;                     // of the training thread, for each tensor
  Nanos wake = 30'000;                      // from the end of the last call until the training thread goes on
  std::vector<std::vector<double>> slower;  // [rank][step] how many times as long it computes
  std::function<void(int step)> ended = {};  // of rank 0; may be empty
};

// What one step of one rank took.
struct StepTimes {
  Nanos began = 0, computed = 0, ended = 0;
};

struct JobResult {
  std::vector<std::vector<StepTimes>> steps;  // [rank][step]
  std::vector<int64_t> calls, messages;       // [step] of rank 0: begun by its end, over all steps so far
  std::vector<StartedCall> last_calls;        // that rank 0 started in its last step
  CallsUse use;
  int64_t plans_begun = 0;
  std::vector<control::Tuner::News> tuned;  // what the tuner has tried
  control::BucketWay way;                   // with which it has ended
};

// calls is new. Fails if the job hangs, which would be a fault of the library or of this simulation.
Result<JobResult> run_job(const Program& program, const JobOptions& options, Calls& calls);

}  // namespace rueda::simulate
