// What the launcher knows about each rank of a job: its host, its process, and how it ended. Pure.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "launch/agent_messages.h"
#include "launch/ending.h"
#include "launch/hosts.h"

namespace rueda::launch {

class JobRanks {
 public:
  JobRanks() = default;
  JobRanks(std::vector<Placement> placements, std::span<const HostSlots> hosts);

  [[nodiscard]] std::span<const Placement> placements() const { return placements_; }
  [[nodiscard]] int host_count() const;  // hosts that have ranks
  [[nodiscard]] int size() const { return static_cast<int>(records_.size()); }
  [[nodiscard]] const std::string& host_of(Rank rank) const;

  [[nodiscard]] std::vector<Rank> ranks_on(int host) const;

  void add_host(std::string host) { hosts_.push_back(std::move(host)); }
  // Of an elastic job: one more, on a host that may be new. Returns its number.
  Rank add(const std::string& host);
  void on_started(Rank rank, int pid);
  // at: the time of exit.at since the ranks were started. is_interrupted: the user is stopping the job.
  const Ending& on_exit(Exit exit, Nanos at, bool is_interrupted);
  // Every rank that was still running on this host has ended: at, was_stopped and trouble are taken from
  // `as`. Returns false if no rank was running there.
  bool on_host_lost(int host, const Ending& as);

  [[nodiscard]] int running() const;
  [[nodiscard]] std::optional<Rank> any_failed() const;  // the lowest rank that failed
  [[nodiscard]] std::vector<Ending> endings() const;  // of the ranks that have ended, in the order of ranks

 private:
  struct RankRecord {
    int pid = 0;  // 0 = not started
    std::optional<Ending> ending;
  };
  RankRecord& record(Rank rank) { return records_[static_cast<size_t>(rank)]; }

  std::vector<Placement> placements_;
  std::vector<std::string> hosts_;   // names, as Placement::host counts them
  std::vector<RankRecord> records_;  // [size]
};

}  // namespace rueda::launch
