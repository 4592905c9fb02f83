// Both roles of `rueda bench`: the launcher, which starts the ranks of one job after the other, and a rank.
#pragma once

#include <string>

#include "bench/request.h"

namespace rueda::bench {

// Runs as a rank if a launcher's environment is found, otherwise as the launcher. Returns the exit status.
int run(const Request& request, const std::string& own_path);

}  // namespace rueda::bench
