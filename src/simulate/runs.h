// One job of a request under virtual time, with and without what costs it time. Pure and deterministic.
#pragma once

#include <vector>

#include "simulate/job.h"
#include "simulate/prediction.h"

namespace rueda::simulate {

inline constexpr int kWarmUp = 6;  // steps in which a plan is learned; those that are tuned follow

// What may be taken away, to see how much of a step it costs.
enum Cause : unsigned { kLinks = 1, kHosts = 2, kJitter = 4, kSlowdown = 8, kAllCauses = 15 };

struct Case {
  // cluster: of the ranks alone. late: not the request's, where one of them is taken away.
  Case(const Request& request, Cluster cluster, std::vector<bench::LateRank> late);

  const Request& request;
  Cluster cluster;  // with_servers()
  std::vector<bench::LateRank> late;
  int workers = 0;
  Program program;
  int64_t bucket_bytes = 0;  // of plans; causes that are taken away change no decision

  int tuned_steps = 0;          // as the request's, or none
  control::BucketWay way = {};  // of buckets, with which a plan begins: what was found in these steps

  // The most bytes that tensors in one call have together, as the library's limits say; 0: none are fused.
  [[nodiscard]] int64_t fused_bytes() const;
  // The causes that take any time. Without the others a step is the same.
  [[nodiscard]] unsigned causes() const;
  [[nodiscard]] double usual_speed() const;  // of hosts; that others differ from it is jitter
  // Steps before those that count. After those that are tuned the last change takes effect.
  [[nodiscard]] int warm_up() const { return kWarmUp + (tuned_steps > 0 ? tuned_steps + kWarmUp : 0); }
};

struct CaseRun {
  JobResult job;
  std::vector<double> step_ms;  // without warm-up
  [[nodiscard]] double mean_ms() const;
};

Result<CaseRun> run_case(const Case& one, unsigned causes, int steps);

// Calls in shared memory and by NCCL have no messages of ours.
bool is_by_message(const Request& request, int ranks, const Cluster& cluster);

// The Shapley values: how much longer a step becomes with each cause, on average over all orders of adding
// them.
Result<Losses> split_losses(const Case& one, int steps);

// What is slower than its like, that which costs most first; each costs at least a hundredth of a step.
// cluster: of the ranks alone. way: as that of a case.
Result<std::vector<Culprit>> find_culprits(const Request& request, const Cluster& cluster,
                                           const control::BucketWay& way, int steps);

}  // namespace rueda::simulate
