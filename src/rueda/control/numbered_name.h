// Names with a running number in them, as operations have to which the user gave no name: allreduce.noname.7.
// A learned plan takes names that differ in the number alone for one operation that recurs. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace rueda::control {

struct NumberedName {
  std::string_view before, after;  // the number
  int64_t number = 0;

  // The same name with another number.
  [[nodiscard]] std::string with(int64_t other) const {
    return std::string(before) + std::to_string(other) + std::string(after);
  }
  // Equal for names that differ in the number alone. No name contains a zero byte.
  void put_key(std::string& key) const {
    key.assign(before).push_back('\0');
    key.append(after);
  }
};

// at: the byte at which the number begins. None if there is no number of at most 18 digits.
std::optional<NumberedName> split_name(std::string_view name, uint16_t at);

}  // namespace rueda::control
