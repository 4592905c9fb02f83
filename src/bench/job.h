// `rueda bench` from both ends: the launcher, which starts ranks job by job, and a rank.
#pragma once

#include <string>

#include "bench/request.h"

namespace rueda::bench {

// A rank where a launcher's environment is found, else the launcher. Returns the exit status.
int run(const Request& request, const std::string& own_path);

}  // namespace rueda::bench
