// What a process of `rueda preflight` is asked for.
#pragma once

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

}  // namespace rueda::preflight
