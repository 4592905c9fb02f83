// Asks the processes of this user on this host. Effects.
#pragma once

#include <string>
#include <vector>

#include "observe/fold.h"
#include "observe/view.h"
#include "rueda/base/status.h"

namespace rueda::observe {

struct Found {
  std::vector<Process> processes;
  std::vector<std::string> sockets;  // of each
  std::vector<std::string> remarks;  // about those that did not answer
};
// target: empty: all; else the beginning of a job's id, or the process id of a rank or of what started it.
// Fails if nothing fits.
Result<Found> find_processes(const std::string& target);

// All at once, because a rank that hangs takes its time. rank: -1: all of them.
std::vector<RankStacks> ask_for_stacks(const Found& found, Rank rank, std::vector<std::string>& remarks);

}  // namespace rueda::observe
