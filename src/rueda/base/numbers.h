// Numbers as users write them. Pure.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>

namespace rueda {

// Nothing: the text is no number of this type, or there is more than the number.
template <class T>
std::optional<T> number_of(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace rueda
