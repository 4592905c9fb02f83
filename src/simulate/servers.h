// Training jobs whose gradients are summed by parameter servers, under virtual time. There are two models,
// because servers are built in two ways. Deterministic. No I/O, no clock, no threads.
#pragma once

#include <string>

#include "bench/sizes.h"
#include "simulate/cluster.h"
#include "simulate/job.h"

namespace rueda::simulate {

enum class Strategy {
  kAllreduce,
  // As rueda bench replay does it: each server is on the host of a rank. What belongs to servers travels by
  // alltoalls, which the engines run one after the other, so a port is used in one direction at a time.
  kParameterServer,
  // As TensorFlow 1.x does it: servers are processes of their own, on hosts of their own or beside workers. A
  // worker sends each gradient as soon as it is ready. When a server has those of all workers, it has the new
  // variable; when all variables are new, workers begin the next step and read them, the forward pass waits
  // for each. Many connections are open at once, in both directions.
  kTensorflowServers
};

struct Servers {
  Strategy strategy = Strategy::kAllreduce;
  bench::ServerCount count = {};
  bool is_whole = false;     // each variable on one server; else cut over all (bench/placement.h)
  bool is_greedy = false;    // whole, each on the server that has the fewest bytes by then; else in turns
  bool is_dedicated = true;  // kTensorflowServers: on hosts of their own
};

inline constexpr int kMostReplayedRanks = 64, kMostWorkers = 512;
std::string placement_text(const Servers& servers);
std::string strategy_text(const Servers& servers);  // as the option names it
// Whether so many ranks can have them. why: a sentence.
Status check_servers(const Servers& servers, int ranks);
// With the hosts of dedicated servers, which are like the first host, behind the others. ranks: of the
// cluster.
Cluster with_servers(Cluster cluster, const Servers& servers, int ranks);

// Where a job runs, and how fast it is there.
struct Platform {
  Layout layout;  // with_servers()
  Costs costs;
  schedule::Topology chosen_for;  // as in CallOptions
};
// options.engine.ranks: workers. strategy is not kAllreduce.
Result<JobResult> run_servers(const Program& program, const JobOptions& options, const Servers& servers,
                              const Platform& platform);

// Of all calls those of the steps from options.counted_from on.
int64_t calls_that_count(const JobOptions& options, const JobResult& result);

// Each in a file of its own.
Result<JobResult> run_replayed_servers(const Program& program, const JobOptions& options,
                                       const Servers& servers, const Platform& platform);
Result<JobResult> run_tensorflow_servers(const Program& program, const JobOptions& options,
                                         const Servers& servers, const Platform& platform);

}  // namespace rueda::simulate
