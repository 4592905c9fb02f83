// Metrics as a file, for the textfile collector of Prometheus's node_exporter. Any thread.
#pragma once

#include <string>
#include <string_view>

#include "rueda/base/status.h"
#include "rueda/base/types.h"

namespace rueda::status {

// The path of one rank: ".rank<N>" before the ending ".prom", which is added where it is missing. The
// collector reads nothing but files with that ending. Pure.
std::string textfile_path(const std::string& path, Rank rank);

// Replaces the file as a whole, so the collector never sees a half.
Status replace_file(const std::string& path, std::string_view text);
// The same for the file of one rank. A failure is logged once.
void write_textfile(const std::string& path, Rank rank, const std::string& text);

}  // namespace rueda::status
