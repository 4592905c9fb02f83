// Logs that an earlier job left in the folder of --log-dir. They are neither overwritten nor mixed with those
// of the new job, which may have fewer ranks.
#pragma once

#include <string>
#include <string_view>

#include "rueda/base/status.h"
#include "rueda/base/unique_fd.h"

namespace rueda::launch {

// "rank-0003.out", ".err" and ".prom", and no other name. Pure.
bool is_log_name(std::string_view name);

// Makes the folder and holds it for as long as the descriptor is open; another job is refused meanwhile. Not
// open: the folder cannot be made, as writing the first log will tell, or its file system has no locks.
Result<UniqueFd> hold_log_folder(const std::string& folder);

// Moves the logs in the folder to a new folder `earlier-N` in it, and returns its path; "" if there were
// none. Links and devices stay: the user wants the output there.
Result<std::string> set_aside_logs(const std::string& folder);

}  // namespace rueda::launch
