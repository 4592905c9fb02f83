#include "simulate/servers.h"

#include <fmt/format.h>

namespace rueda::simulate {

Status check_servers(const Servers& servers, int ranks) {
  if (servers.strategy == Strategy::kAllreduce) return Status::ok();
  const bool is_replay = servers.strategy == Strategy::kParameterServer;
  const int most = is_replay ? kMostReplayedRanks : kMostWorkers, count = servers.count.of(ranks);
  if (ranks > most)
    return {
        Code::kInvalidArgument,
        fmt::format("{} ranks with parameter servers are too many to be simulated; up to {} are, with "
                    "--strategy {}",
                    ranks, is_replay ? kMostReplayedRanks : kMostWorkers,
                    is_replay ? "parameter-server, and more with tensorflow-servers" : "tensorflow-servers")};
  if (count > ranks)
    return {Code::kInvalidArgument,
            fmt::format("--servers {} is more than there are ranks, {}; give at most one for each rank",
                        count, ranks)};
  return Status::ok();
}

Cluster with_servers(Cluster cluster, const Servers& servers, int ranks) {
  if (servers.strategy != Strategy::kTensorflowServers || !servers.is_dedicated) return cluster;
  const Host like = cluster.hosts.front();
  for (int i = 0; i < servers.count.of(ranks); ++i) {
    Host host = like;
    host.name = fmt::format("server {}", i);
    host.ranks = 1;
    cluster.hosts.push_back(std::move(host));
  }
  return cluster;
}

int64_t calls_that_count(const JobOptions& options, const JobResult& result) {
  const auto before = static_cast<size_t>(options.counted_from);
  return result.calls.back() - (before > 0 ? result.calls[before - 1] : 0);
}

Result<JobResult> run_servers(const Program& program, const JobOptions& options, const Servers& servers,
                              const Platform& platform) {
  return servers.strategy == Strategy::kParameterServer
             ? run_replayed_servers(program, options, servers, platform)
             : run_tensorflow_servers(program, options, servers, platform);
}

}  // namespace rueda::simulate
