// Where the record files of a job lie.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "rueda/base/status.h"
#include "rueda/base/types.h"

namespace rueda::timeline {

inline constexpr std::string_view kRecordSuffix = ".rec";

// Those in a folder, or those beside the timeline "t.json" (t.json.rank0.rec, …), which need not be there
// itself. In no order; empty where the folder cannot be read.
std::vector<std::string> record_files_of(const std::string& path);

// Writes what a running rank has sent, which is a record file or a clause that says why it has none:
// "t" -> "t.rank3.rec". Returns the path.
Result<std::string> write_record(const std::string& out, Rank rank, std::string_view sent);

}  // namespace rueda::timeline
