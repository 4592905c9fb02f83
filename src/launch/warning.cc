#include "launch/warning.h"

#include <fmt/format.h>
#include <unistd.h>

#include <string>

namespace rueda::launch {

void warn(std::string_view command, std::string_view what) {
  const std::string text = fmt::format("rueda {}: {}\n", command, what);
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace rueda::launch
