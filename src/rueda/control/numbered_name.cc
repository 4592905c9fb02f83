#include "rueda/control/numbered_name.h"

#include <charconv>

namespace rueda::control {

std::optional<NumberedName> split_name(std::string_view name, uint16_t at) {
  constexpr size_t kMostDigits = 18;  // so that it fits, and sums of two do as well
  if (at == 0 || at >= name.size() || name[at] < '0' || name[at] > '9') return std::nullopt;
  NumberedName parts{.before = name.substr(0, at), .after = {}};
  const char* const begin = name.data() + at;
  const auto [end, error] = std::from_chars(begin, name.data() + name.size(), parts.number);
  const auto digits = static_cast<size_t>(end - begin);
  if (error != std::errc() || digits > kMostDigits) return std::nullopt;
  parts.after = name.substr(at + digits);
  return parts;
}

}  // namespace rueda::control
