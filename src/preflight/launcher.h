// The launcher's part: hosts that may not answer, and the job on those that do.
#pragma once

#include <string>
#include <vector>

#include "preflight/outcome.h"
#include "preflight/request.h"

namespace rueda::preflight {

// What kFacts and kMeasure print before their line, so that it is found among what else hosts print.
inline constexpr const char* kFactsMark = "rueda-preflight-facts ";
inline constexpr const char* kMeasuredMark = "rueda-preflight-measured ";
inline constexpr const char* kFailedMark = "rueda-preflight-failed ";

// Pure: the rest of the last line that begins with the mark; "" = there is none.
std::string marked_line(const std::string& text, const std::string& mark);
// Pure: what the launcher said of a job that failed, as one line, without our own prefixes.
std::string reason_of(const std::string& news);

// Pure: "rank 3" becomes "rank 3 (on c)", which is what people can look for. hosts: that of each rank. Adds
// the hosts that are named to `named`, each once.
std::string with_hosts(const std::string& sentence, const std::vector<std::string>& hosts,
                       std::vector<std::string>& named);

// Starts the jobs and waits for them.
Outcome launch_and_judge(const Request& request, const std::string& own_path);

}  // namespace rueda::preflight
