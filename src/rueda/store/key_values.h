// The values of the memory store and of the TCP server, and the errors that all stores
// share. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "rueda/base/limits.h"
#include "rueda/base/status.h"

namespace rueda::store {

// The limit for all values of one store together. A job of 65,536 ranks with 4 KiB each stays below it.
inline constexpr size_t kMaxStoreBytes = size_t{1} << 30;

Status check_key(std::string_view key);
Status check_value(std::string_view key, std::string_view value);
Status key_timeout(std::string_view key, std::string_view where);
Status key_absent(std::string_view key, std::string_view where);
// Adds to a counter kept as decimal text; an absent value counts as 0.
Result<int64_t> add_to_text(std::string_view key, const std::optional<std::string>& text, int64_t amount);

Status check_both(std::string_view key, std::string_view expected, std::string_view value);

class KeyValues {
 public:
  Status set(std::string_view key, std::string_view value);
  [[nodiscard]] const std::string* find(std::string_view key) const;  // null when absent
  Result<int64_t> add(std::string_view key, int64_t amount);
  Result<std::string> compare_and_set(std::string_view key, std::string_view expected,
                                      std::string_view value);
  void remove_prefix(std::string_view prefix);

 private:
  std::map<std::string, std::string, std::less<>> values_;
  size_t bytes_ = 0;
};

}  // namespace rueda::store
