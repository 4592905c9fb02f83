// JSON as people write it: what the parser of a library takes in silence is a mistake here. Pure.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "rueda/base/status.h"

namespace rueda::workload {

// Refuses a key that an object has twice. What it says completes "the file is wrong: ".
Result<nlohmann::json> parse_json(std::string_view text);

// A name of ours is written to terminals, which obey such characters.
bool has_control_character(std::string_view text);

}  // namespace rueda::workload
