// What `rueda bench` was asked to do. Immutable once parsed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/faults.h"
#include "bench/sizes.h"
#include "rueda/base/status.h"
#include "workload/models.h"

namespace rueda::bench {

struct Request {
  std::string what;                     // allreduce … barrier, latency, burst, replay
  std::vector<int> ranks = {2};         // one job for each
  std::vector<int64_t> sizes;           // bytes
  std::vector<std::string> memory;      // of "shared", "private"
  bool is_memory_chosen = false;        // by the user; else shared buffers are left out where there are none
  std::vector<std::string> transports;  // of "auto", "shm", "tcp"
  std::vector<std::string> modes;       // burst: of "fused", "unfused", "planned"
  std::vector<std::string> strategies;  // replay: of "auto", "ring", "two-level", "parameter-server"
  std::vector<ServerCount> servers = {{}};        // replay with parameter servers
  std::vector<std::string> placements = {"cut"};  // the same: of "cut", "whole"
  std::string algorithm;                          // "" = rueda's choice
  std::string wire;                               // burst, replay: how sums travel; "" = as RUEDA_WIRE says
  int iterations = 0;                             // 0 = as many as fit into `seconds`
  double seconds = 0.5;                           // for each line of the table
  std::vector<workload::Model> models;            // burst, replay
  int64_t rate = 1'000'000'000;                   // replay: bits a second of each host's link, each way
  int per_host = 1;                               // replay: ranks in one namespace
  bool cross_step = false;             // replay: the next forward waits for each layer's own gradients
  double dilation = 0;                 // replay: compute time is stretched by this; 0 = see ratio_rate
  Faults faults;                       // replay: of hosts and ranks, on purpose
  std::string congestion = "reno";     // replay: TCP's congestion control in the namespaces
  std::vector<std::string> command;    // replay: a program to run on the hosts instead; empty = none
  std::string json;                    // path; "" = none
  std::vector<std::string> arguments;  // as given, for the ranks
};

// A stretched step on a slow link stands for a normal step on a link of this rate: 25 Gbit/s shared
// by 4 GPUs.
inline constexpr double kRatioRate = 6.25e9;
inline double dilation_of(const Request& request) {
  return request.dilation > 0 ? request.dilation : kRatioRate / static_cast<double>(request.rate);
}

// One start of ranks, with the options that vary between the jobs of a request.
struct Job {
  int ranks = 2;
  std::string transport = "auto", mode = "planned", strategy = "auto";
  ServerCount servers = {};  // of strategy parameter-server, as is placement
  std::string placement = "cut";
  std::string model;   // burst and replay: workload::Model::name
  std::string report;  // rank 0 appends its rows here, a JSON object a line; "" = only prints
  std::vector<std::string> namespaces;  // replay: where the namespace of each host can be opened
  bool is_one_machine = false;          // all ranks share one clock
};

std::vector<Job> jobs_of(const Request& request);

// Why the ranks could not become a job over a transport. Where the library advises another value of
// RUEDA_TRANSPORTS, which bench has set itself, --transport is what the user can change. all: as requested.
Status about_transport(Status failure, const std::string& transport, const std::vector<std::string>& all);

std::string encode(const Job& job);
Result<Job> decode_job(const std::string& text);
// The environment variable that carries a Job to the ranks.
inline constexpr const char* kJobVariable = "RUEDA_BENCH_JOB";

}  // namespace rueda::bench
