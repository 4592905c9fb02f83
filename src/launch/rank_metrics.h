// The metrics of a rank, on the rank's host: the agent lets the rank write them into the private directory.
#pragma once

#include <string>

#include "rueda/base/types.h"

namespace rueda::launch {

inline constexpr const char* kMetricsVariable = "RUEDA_METRICS_TEXTFILE";
// What it is for this rank of the job.
std::string metrics_path(const std::string& private_dir, Rank rank);

// What the rank has written last, whatever its number is by now (a job that has lost ranks counts anew).
// Empty: nothing, or more than kMaxMetricsBytes.
std::string read_metrics(const std::string& private_dir, Rank rank);

}  // namespace rueda::launch
