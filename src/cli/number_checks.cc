#include "cli/number_checks.h"

#include <fmt/format.h>

#include <optional>
#include <string>

#include "rueda/base/numbers.h"

namespace rueda::cli {

CLI::Validator number_from(double least, double most) {
  const auto check = [least, most](const std::string& text) -> std::string {
    const std::optional<double> value = number_of<double>(text);
    if (value && *value >= least && *value <= most) return {};
    return fmt::format("{} is not a number from {} to {}", text, least, most);
  };
  return CLI::Validator(check, fmt::format("in [{} - {}]", least, most));
}

CLI::Validator whole_number(uint64_t least, uint64_t most) {
  const auto check = [least, most](const std::string& text) -> std::string {
    const std::optional<uint64_t> value = number_of<uint64_t>(text);
    if (value && *value >= least && *value <= most) return {};
    return fmt::format("{} is not a whole number from {} to {}", text, least, most);
  };
  return CLI::Validator(check, "");
}

}  // namespace rueda::cli
