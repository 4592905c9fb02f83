// Logs that an earlier job left in the folder of --log-dir. They are neither overwritten nor mixed with those
// of the new job, which may have fewer ranks.
#pragma once

#include <string>
#include <string_view>

#include "rueda/base/status.h"

namespace rueda::launch {

// "rank-0003.out", ".err" and ".prom", and no other name. Pure.
bool is_log_name(std::string_view name);

// Moves the logs in the folder to a new folder `earlier-N` in it, and returns its path; "" if there were
// none. Links and devices stay: the user wants the output there. An earlier job that still runs goes on
// writing to the moved files.
Result<std::string> set_aside_logs(const std::string& folder);

}  // namespace rueda::launch
