// The roles of `rueda preflight`: the launcher, which asks every host and then starts the job that measures;
// a rank of a job, its own or another launcher's; and the answer of one host.
#pragma once

#include <optional>
#include <string>

#include "launch/job_options.h"

namespace rueda::preflight {

struct Request {
  enum class Role {
    kWhole,   // as users call it
    kFacts,   // one rank on one host: prints the host's facts
    kMeasure  // a rank of the job that the launcher has started: the first one prints what was measured
  } role = Role::kWhole;
  launch::RunOptions job;       // kWhole, without a launcher: hosts, ssh, …; its command is ignored
  int rounds = 0;               // of pairs; 0 = default_rounds()
  double least_gbit_per_s = 0;  // demanded of every pair
  std::string json, heat_map;   // paths; "" = none, "-" = stdout instead of the page (json)
};

// The exit status: 0 all well, 1 a problem was found, 2 it could not run.
int run(const Request& request, const std::string& own_path);

// Whether a launcher has started this process as a rank of a job. In a world that cannot be read: true, and
// run() reports it.
bool is_rank();

}  // namespace rueda::preflight
