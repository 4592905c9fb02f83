// --config-file: the settings of horovodrun's YAML file, in JSON or in the two-level YAML such files are
// written in.
#pragma once

#include <string_view>

#include "launch/environment.h"

namespace rueda::cli {

// path is for messages only. A key that is not known, or a value of the wrong type, is refused by name.
Result<launch::Tuning> parse_config_file(std::string_view text, std::string_view path);
// A value given on the command line wins over the file's.
void fill_gaps(launch::Tuning& given, const launch::Tuning& from_file);

}  // namespace rueda::cli
