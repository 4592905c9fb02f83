// JSON as the text that callers and other processes get.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace rueda::capi {

// Host names and settings come from the environment, so they may contain anything.
inline std::string text_of(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace rueda::capi
