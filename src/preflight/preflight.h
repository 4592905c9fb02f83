// The roles of `rueda preflight`: the launcher, which asks every host and then starts the job that measures;
// a rank of a job, its own or another launcher's; and the answer of one host.
#pragma once

#include <string>

#include "preflight/request.h"

namespace rueda::preflight {

// The exit status: 0 all well, 1 a problem was found, 2 it could not run.
int run(const Request& request, const std::string& own_path);

// Whether a launcher has started this process as a rank of a job. In a world that cannot be read: true, and
// run() reports it.
bool is_rank();

}  // namespace rueda::preflight
