// The record files of one job: which rank each is of, which epochs they hold, and how their clocks relate.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "rueda/base/status.h"
#include "rueda/base/types.h"
#include "rueda/trace/clock_estimate.h"
#include "timeline/link_series.h"
#include "timeline/losses.h"
#include "timeline/records.h"
#include "timeline/step_sources.h"

namespace rueda::timeline {

// One rank in the epoch that is looked at.
struct RankFile {
  std::string path;
  Rank rank = 0, size = 1;
  int64_t job = 0, pid = 0;
  std::string host, host_key, command;
  Nanos began = 0;            // the epoch, on this rank's clock
  int64_t began_micros = 0;   // the same moment in microseconds since 1970
  Nanos first = 0, last = 0;  // records of the epoch, on this rank's clock
  int64_t calls = 0;
  Losses losses;  // records that could not be written
  Steps steps;
  int64_t waits = 0;                                   // of the program for a call, as far as it says
  int64_t steps_with_calls = 0, steps_with_waits = 0;  // between marks; those with waits are among the others
  int64_t plans = 0, planned_calls = 0;
  std::map<std::string, int64_t> departures;  // why plans ended
  std::string failure;                        // why the epoch broke; empty: it did not
  std::string stall;                          // the last of `stalls` that this rank was told of
  int64_t stalls = 0;
  std::vector<std::pair<Nanos, std::string>> verdicts;  // that this rank has told, and when; the last ones
  int64_t verdict_count = 0;
  std::map<Rank, LinkSeries> links;  // by peer; those that something counts; on this rank's clock
  trace::ClockEstimate clock;        // to the clock of rank 0; empty on rank 0's host
  bool is_aligned = true;

  // On the clock of rank 0.
  [[nodiscard]] Nanos aligned(Nanos when) const { return when == 0 ? 0 : when + clock.at(when).offset; }
  // By how much times of this rank and of another may be wrong against each other, at an aligned time.
  [[nodiscard]] Nanos bound(const RankFile& other, Nanos aligned) const {
    return host_key == other.host_key ? 0 : own_bound(aligned) + other.own_bound(aligned);
  }

 private:
  [[nodiscard]] Nanos own_bound(Nanos aligned) const {
    return clock.at(aligned - clock.at(last).offset).bound;
  }
};

struct Job {
  Epoch epoch = 0;
  std::vector<Epoch> epochs;  // all that the files hold
  Rank size = 1;
  std::vector<RankFile> ranks;       // sorted; those whose files were given
  std::vector<std::string> remarks;  // what the user should know of the files, each a sentence
  bool ends_early = false;           // records of one rank end clearly before those of others
};

// Whether the program says when it waits for calls. One that runs its steps in compiled functions may still
// wait for a broadcast or a metric now and then, so a part of the steps is not enough. Without marks any wait
// counts.
bool says_when_it_waits(const Job& job);

// "t.json" stands for the files beside it, a folder for the record files in it. Fails if there are none.
Result<std::vector<std::string>> find_files(const std::vector<std::string>& arguments);

// epoch: -1 = the one with the most steps, or else with the most calls. Reads every file once. Files that
// cannot be read, and those of older jobs, are left out with a remark. Fails if none is left.
Result<Job> read_job(const std::vector<std::string>& paths, int64_t epoch, Names& names);

}  // namespace rueda::timeline
