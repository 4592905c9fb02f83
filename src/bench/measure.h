// The subcommands as each rank runs them. They are collective: all ranks call the same function with
// the same request.
#pragma once

#include "bench/rank.h"
#include "bench/report.h"
#include "bench/request.h"

namespace rueda::bench {

struct Context {
  Rank& rank;
  const Request& request;
  const Job& job;
  Report& report;
  bool is_clock_shared = false;
};

Status measure_collective(const Context& context);
Status measure_latency(const Context& context);
Status measure_burst(const Context& context);
Status measure_replay(const Context& context);

// When each iteration began and ended on this rank, and whether all results so far were right.
struct Times {
  std::string algorithm;              // that ran in the warm-ups
  std::vector<int64_t> starts, ends;  // nanoseconds
  bool is_right = true;
  int64_t messages_before = 0;  // Rank::negotiation_messages() when measuring began
};
struct AllTimes {
  std::vector<double> us;  // of each iteration
  bool is_right = true;    // on all ranks
  std::string algorithm;   // as Rank::algorithm()
  int64_t messages = 0;    // control messages that all ranks have sent since then
};
// Discards the times of the warm-up.
void start_measuring(const Context& context, Times& times);
Result<AllTimes> gather_times(const Context& context, const Times& mine);

// How many iterations of `us` microseconds fit into the requested time. The same on all ranks.
Result<int> agree_iterations(const Context& context, double us, int least);

}  // namespace rueda::bench
