// Where a job runs: hosts that the user names, or those that a scheduler has given.
#pragma once

#include <string>

#include "launch/job_options.h"
#include "rueda/base/status.h"

namespace rueda::cli {

struct HostRequest {
  std::string hosts, host_file;    // -H, --hostfile; "" = not given
  int size = 0;                    // 0 = not given
  bool leaves_allocation = false;  // hosts of a scheduler are not used
  bool has_own_ssh = false;        // the user said how to reach hosts
};

Result<std::string> read_file(const std::string& path);

// Fills in hosts, allocation and uses_blaunch. Returns whether the user or a scheduler has named the hosts;
// otherwise it is this machine.
Result<bool> find_hosts(const HostRequest& request, launch::RunOptions& options);

}  // namespace rueda::cli
