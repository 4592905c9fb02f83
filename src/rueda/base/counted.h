// Counts in sentences: "1 rank", "2 ranks", "3 processes".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace rueda {

// what: one of them.
inline std::string counted(int64_t count, std::string_view what) {
  std::string text = std::to_string(count) + " " + std::string(what);
  if (count != 1) text += what.ends_with('s') ? "es" : "s";
  return text;
}

}  // namespace rueda
