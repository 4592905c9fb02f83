#include "launch/agent_warning.h"

#include <fmt/format.h>
#include <unistd.h>

#include <string>

namespace rueda::launch {

void warn_as_agent(std::string_view what) {
  const std::string text = fmt::format("rueda agent: {}\n", what);
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace rueda::launch
