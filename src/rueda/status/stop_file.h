// A file that says that a job is being ended. Whoever starts ranks may name it to them, and then makes it
// before it tells them to end. A rank that ends after that is not lost. Any thread.
#pragma once

#include <unistd.h>

#include <string>

namespace rueda::status {

inline constexpr const char* kStopFileVariable = "RUEDA_STOP_FILE";

// path: "" = nobody says it.
inline bool is_being_ended(const std::string& path) {
  return !path.empty() && access(path.c_str(), F_OK) == 0;
}

}  // namespace rueda::status
