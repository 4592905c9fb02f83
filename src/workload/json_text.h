// JSON as people write it: what the parser of a library takes in silence is a mistake here. Pure, but for
// read_text().
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "rueda/base/status.h"

namespace rueda::workload {

// nullopt: it cannot be read; a directory opens and cannot either.
std::optional<std::string> read_text(const std::string& path);

// Refuses a key that an object has twice. What it says completes "the file is wrong: ".
Result<nlohmann::json> parse_json(std::string_view text);

// A name of ours is written to terminals, which obey such characters.
bool has_control_character(std::string_view text);

}  // namespace rueda::workload
