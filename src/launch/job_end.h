// How a job ends for its user: the report, and the last of its output.
#pragma once

#include <string>
#include <vector>

#include "launch/job_options.h"
#include "launch/log_collector.h"
#include "launch/rank_output.h"
#include "launch/report.h"
#include "launch/result_files.h"

namespace rueda::launch {

struct JobEnd {
  std::vector<Ending> endings;  // those that decide
  std::string verdict;          // why rueda has ended an elastic job; empty: its ranks decide
  int interrupt = 0;            // the signal that has ended the job; 0 = none
};

// Tells how a job ended whose ranks were started. Returns its exit status.
int report(JobEnd end, PrefixStyle::Kind kind, RankOutput& output, ResultFiles& results);

// Writes what the consoles still hold, and waits for the copy of the logs. status: of the job. Returns that
// of the launcher: if output was lost, a job that succeeded is reported as failed.
int finish_output(int status, RankOutput& output, LogCollector& collector);

}  // namespace rueda::launch
