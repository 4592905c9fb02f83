// Where the record files of a job lie.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace rueda::timeline {

inline constexpr std::string_view kRecordSuffix = ".rec";

// Those in a folder, or those beside the timeline "t.json" (t.json.rank0.rec, …), which need not be there
// itself. In no order; empty where the folder cannot be read.
std::vector<std::string> record_files_of(const std::string& path);

}  // namespace rueda::timeline
