// What the processes of a host have answered, as values. Pure.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rueda/base/process.h"
#include "rueda/base/status.h"
#include "rueda/base/types.h"

namespace rueda::observe {

struct InFlight {
  std::string name, what;
  int process_set = 0;
  std::vector<Rank> members;  // empty: the world
  double age_s = 0;
};

// A rank for which the others wait, as rank 0 tells it.
struct Straggler {
  Rank rank = 0;
  std::string host;
  double share = 0, window_s = 0;
};

// An init that waits for other ranks.
struct Starting {
  double for_s = 0;
  std::vector<Rank> missing;  // as far as this process knows; empty: all have come, or nobody knows yet
};

struct Process {
  nlohmann::json answer;  // as it came
  int own_pid = 0;        // as it sees itself
  int pid = 0;            // as who asked it does; 0: it is not visible there. In a container the two differ
  std::string job;        // empty: it has not been connected yet
  Rank rank = -1, size = 0;
  int64_t view = 0;     // of an elastic job; 0: it is none
  std::string process;  // its name there, which says whether it replaces another
  std::string host;
  std::string reached_at;            // the host as its launcher names it; empty: this host
  int launcher = 0;                  // the process id of that launcher
  std::optional<Starting> starting;  // it has a rank and a size, and no job yet
  std::string failure;               // why the job cannot go on; empty: it can
  int64_t steps = 0;
  std::optional<double> steps_per_s;
  int64_t resident_bytes = 0, link_bytes_per_s = 0;
  std::optional<double> input_for_s;  // it waits for its next batch
  std::optional<double> cores;        // that it uses, where it is in no operation
  bool has_plan = false;
  int64_t plans_begun = 0;
  std::vector<InFlight> in_flight;                                   // oldest first
  int64_t in_flight_count = 0;                                       // the list may be shorter
  std::vector<std::pair<std::string, std::vector<Rank>>> elsewhere;  // the ranks of each other host
  std::vector<Straggler> stragglers;                                 // most awaited first; only of rank 0
};

// Ranks of another host that cannot be asked, have not answered to its agent, or whose agent has not.
struct Absent {
  std::string job;   // empty: no rank has told it
  int launcher = 0;  // its process id; 0: `rueda run` has not started them
  std::string host;
  std::vector<Rank> ranks;
  std::string why;
  bool is_here = false;  // their processes are on this host, and do not answer
};

// Fails if the text is no answer of `status`. Fields that are missing keep their defaults, because processes
// of another release may answer.
Result<Process> parse_process(const std::string& text);

// Ranks that have not submitted the operation for which this one waits longest; empty: none is known, as when
// all have, or when it waits for less than half a second (the answers are not of one moment). If all that
// have answered have submitted it, those of this host that do not answer are taken for the missing ones.
std::vector<Rank> waits_for(const Process& process, const std::vector<Process>& all,
                            const std::vector<Absent>& absent = {});

// Ranks that are known to be on other hosts, and about which nobody has said anything. all: what has
// answered.
std::vector<Absent> unreached(const std::vector<Process>& all, const std::vector<Absent>& absent);

// Ranks of the job of this size about which nothing at all is known.
std::vector<Rank> unknown_ranks(const std::vector<Process>& ranks_of_job, const std::vector<Absent>& absent);

// A process of this host that has not answered.
struct Unanswered {
  int pid = 0;
  ProcessState state = ProcessState::kUnknown;
};
// Ranks of this host whose processes have not answered; they are known if one job alone misses some.
std::vector<Absent> silent(const std::vector<Process>& all, const std::vector<Absent>& absent,
                           const std::vector<Unanswered>& processes);

// "0-2, 5"
std::string ranges(std::vector<Rank> ranks);

}  // namespace rueda::observe
