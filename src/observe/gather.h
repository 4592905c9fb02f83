// Asks the processes of this user on this host, and its launchers for those of other hosts. Effects.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "observe/fold.h"
#include "observe/view.h"
#include "rueda/base/status.h"

namespace rueda::observe {

inline constexpr int kStatusTime_ms = 2'000;
inline constexpr int kStacksTime_ms = 10'000;

struct Found {
  std::vector<Process> processes;
  std::vector<std::string> sockets;  // of each: its own, or that of its launcher
  std::vector<Absent> absent;        // of other hosts
  std::vector<std::string> remarks;  // about those that did not answer
};
// target: empty: all; else the beginning of a job's id, or the process id of a rank or of what started it,
// which stands for the whole job. Fails if nothing fits.
Result<Found> find_processes(const std::string& target, int timeout_ms);

// What each rank of the job keeps of its last minute, as it sends it. found: of one job. Ranks of this host
// are asked at once; those of others one by one, because their answers are large.
using TakeRecord = std::function<void(Rank rank, const std::string& sent)>;
void ask_for_records(const Found& found, int timeout_ms, const TakeRecord& take,
                     std::vector<std::string>& remarks);

// All at once, because a rank that hangs takes its time. rank: -1: all of them.
std::vector<RankStacks> ask_for_stacks(const Found& found, Rank rank, int timeout_ms,
                                       std::vector<std::string>& remarks);

}  // namespace rueda::observe
