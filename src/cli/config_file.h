// --config-file: the settings of horovodrun's YAML file, in JSON or in the two-level YAML such files are
// written in.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launch/environment.h"

namespace rueda::cli {

struct ConfigFile {
  launch::Tuning tuning;
  std::vector<std::string> unknown;  // keys that mean nothing here, and nothing to horovodrun
};

// path is for messages only. A value of the wrong type is refused by name.
Result<ConfigFile> parse_config_file(std::string_view text, std::string_view path);
// A value given on the command line wins over the file's.
void fill_gaps(launch::Tuning& given, const launch::Tuning& from_file);

}  // namespace rueda::cli
