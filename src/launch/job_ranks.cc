#include "launch/job_ranks.h"

#include <algorithm>

namespace rueda::launch {

JobRanks::JobRanks(std::vector<Placement> placements, std::span<const HostSlots> hosts)
    : placements_(std::move(placements)), records_(placements_.size()) {
  for (const HostSlots& host : hosts) hosts_.push_back(host.name);
}

// Hosts are filled in order, so those with ranks come first.
int JobRanks::host_count() const {
  int count = 0;
  for (const Placement& place : placements_) count = std::max(count, place.host + 1);
  return count;
}

Rank JobRanks::add(const std::string& host) {
  auto at = std::ranges::find(hosts_, host);
  if (at == hosts_.end()) at = hosts_.insert(at, host);
  placements_.push_back({.rank = size(), .host = static_cast<int>(at - hosts_.begin())});
  records_.emplace_back();
  return placements_.back().rank;
}

const std::string& JobRanks::host_of(Rank rank) const {
  return hosts_[static_cast<size_t>(placements_[static_cast<size_t>(rank)].host)];
}

std::vector<Rank> JobRanks::ranks_on(int host) const {
  std::vector<Rank> ranks;
  for (const Placement& place : placements_)
    if (place.host == host) ranks.push_back(place.rank);
  return ranks;
}

void JobRanks::on_started(Rank rank, int pid) { record(rank).pid = pid; }

const Ending& JobRanks::on_exit(Exit exit, Nanos at, bool is_interrupted) {
  Ending ending{.rank = exit.rank,
                .host = host_of(exit.rank),
                .pid = exit.pid,
                .exit_code = exit.exit_code,
                .signal = exit.signal,
                .at = at,
                .was_stopped = exit.was_stopped != 0 || is_interrupted,
                .trouble = std::move(exit.trouble)};
  if (exit.was_out_of_memory >= 0) ending.was_out_of_memory = exit.was_out_of_memory != 0;
  return record(exit.rank).ending.emplace(std::move(ending));
}

bool JobRanks::on_host_lost(int host, const Ending& as) {
  bool is_news = false;
  for (const Placement& place : placements_) {
    RankRecord& own = record(place.rank);
    if (place.host != host || own.ending) continue;
    own.ending = as;
    own.ending->rank = place.rank;
    own.ending->host = host_of(place.rank);
    own.ending->pid = own.pid;
    is_news = true;
  }
  return is_news;
}

int JobRanks::running() const {
  return static_cast<int>(std::ranges::count_if(records_, [](const RankRecord& one) { return !one.ending; }));
}

std::optional<Rank> JobRanks::any_failed() const {
  for (const RankRecord& one : records_)
    if (one.ending && one.ending->is_failure()) return one.ending->rank;
  return std::nullopt;
}

std::vector<Ending> JobRanks::endings() const {
  std::vector<Ending> endings;
  for (const RankRecord& one : records_)
    if (one.ending) endings.push_back(*one.ending);
  return endings;
}

}  // namespace rueda::launch
