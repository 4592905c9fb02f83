// What `rueda simulate` is asked, and what it predicts. Values.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "bench/faults.h"
#include "rueda/control/tuner.h"
#include "simulate/calls.h"
#include "simulate/cluster.h"
#include "simulate/program.h"
#include "simulate/servers.h"
#include "workload/models.h"

namespace rueda::simulate {

enum class Detail {
  kAuto,     // messages for up to kMostMessageRanks ranks, calls for more
  kMessage,  // every message of every call
  kCall      // a call takes as long as one that runs alone
};

// How far a prediction is.
struct Progress {
  int ranks = 0;
  bool is_of_losses = false;  // a job without one of the things that cost time
  int step = 0, steps = 0;    // of this job: ended, and all
};

// What was asked as it was typed, so that a report says how it was made.
struct GivenOption {
  std::string name;   // without the dashes in front
  std::string value;  // "" = a flag
};

struct Request {
  workload::Model model;
  Cluster cluster;
  std::vector<int> ranks;  // a prediction for each that differs; empty: those of the cluster
  Changes changes;         // the rest of what would be if …
  Detail detail = Detail::kAuto;
  int steps = 30;
  bool plans = true, cross_step = false;
  std::string algorithm;             // forced; "" = the cost model chooses
  std::string host_order;            // as order_hosts() takes it
  int64_t fusion_bytes = 128 << 20;  // HOROVOD_FUSION_THRESHOLD; 0 = nothing is fused
  int64_t bucket_bytes = 0;          // RUEDA_PLAN_BUCKET_BYTES; 0 = by the measured latency
  int64_t chunk_bytes = 256 << 10;   // RUEDA_CHUNK_BYTES
  int tuned_steps = 0;               // steps in which buckets are tuned, before those that count
  double cycle_ms = 0;
  Noise noise;
  std::vector<bench::LateRank> late;  // a cause of jitter
  Servers servers;
  std::vector<GivenOption> given = {};         // changes nothing; is told
  bool split = true;                           // says how much of what is lost which cause takes
  std::function<void(const Progress&)> watch;  // is told after each step; may be empty
};

// What is lost of a step, by cause: milliseconds that add up to the mean of the steps that were compared,
// less compute_ms (the Shapley values of taking each cause away).
struct Losses {
  double links_ms = 0, hosts_ms = 0, jitter_ms = 0, slowdown_ms = 0;
  [[nodiscard]] double sum_ms() const { return links_ms + hosts_ms + jitter_ms + slowdown_ms; }
};

// One place that is slower than its like, or several of a kind where one alone is not worth much. What a step
// gains without it was predicted as the step itself was; the library decides anew.
struct Culprit {
  std::string kind;  // port, link, tier, speed, rank, cores
  std::vector<std::string>
      where;         // names of hosts (of a link: of both ends in turn), or numbers of ranks or tiers
  std::string text;  // "the port of host c, 500 Mbit/s"
  double gain_ms = 0;
};

struct Prediction {
  int ranks = 0, hosts = 0, servers = 0;  // hosts: of the ranks
  Detail detail = Detail::kMessage;
  double compute_ms = 0;  // of a step without any communication, on a host of the usual speed
  double step_ms = 0, step_p5_ms = 0, step_p95_ms = 0;
  double efficiency = 0;
  double link_busy = 0, core_busy = 0;  // of the busiest port, and of the busiest machine's cores, 0..1
  std::string bottleneck;               // empty: not known without the split
  Losses losses;
  bool has_losses = false;
  int lost_steps = 0;                   // that were compared for losses; 0 = none
  std::vector<std::string> host_order;  // names; empty where the order is the cluster's
  std::vector<Culprit> culprits;        // the one that costs most first; only with losses
  int steps = 0;
  double calls = 0, messages = 0;       // a step; messages: about which tensors run
  std::vector<StartedCall> last_calls;  // of the last step, in the order in which rank 0 starts them
  int64_t bucket_bytes = 0;             // Case::fused_bytes()
  int64_t plans_begun = 0;
  std::vector<control::Tuner::News> tuned;    // what was tried in tuned_steps
  std::map<std::string, int64_t> algorithms;  // calls
};

struct Report {
  Request request;
  std::vector<Prediction> rows;
};

}  // namespace rueda::simulate
