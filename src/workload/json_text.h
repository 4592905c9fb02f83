// JSON as people write it: what the parser of a library takes in silence is a mistake here. Pure, but for
// read_text().
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "rueda/base/status.h"

namespace rueda::workload {

// The models that are built in have up to 16 KB; preflight writes a few hundred bytes for each pair of hosts
// that it measures.
inline constexpr size_t kMostTextBytes = 256 << 20;

// A whole file, of which no more is read than that. A directory opens, and cannot be read either.
// what: is in it, for people: "model".
Result<std::string> read_text(const std::string& path, std::string_view what);

// Refuses a key that an object has twice. What it says completes "the file is wrong: ".
Result<nlohmann::json> parse_json(std::string_view text);

// A name of ours is written to terminals, which obey such characters.
bool has_control_character(std::string_view text);

}  // namespace rueda::workload
