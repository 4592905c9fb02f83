// --config-file: the settings of horovodrun, in YAML or JSON, by libyaml.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launch/environment.h"

namespace rueda::cli {

struct ConfigFile {
  launch::Tuning tuning;
  bool is_mpi = false;               // controller: mpi
  std::vector<std::string> unknown;  // keys that neither rueda nor horovodrun knows
};

// path is for messages only. A value of the wrong type is refused, and the message names its key.
Result<ConfigFile> parse_config_file(std::string_view text, std::string_view path);
// A value from the command line overrides the value in the file.
void fill_gaps(launch::Tuning& given, const launch::Tuning& from_file);

}  // namespace rueda::cli
