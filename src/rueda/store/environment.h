// Environment variables as values: absent, text or a bounded number. Errors name the variable.
#pragma once

#include <charconv>
#include <optional>
#include <string>

#include "rueda/base/elastic_job.h"
#include "rueda/base/limits.h"
#include "rueda/base/status.h"
#include "rueda/base/types.h"
#include "rueda/store/world.h"

namespace rueda::store {

class Environment {
 public:
  explicit Environment(const GetEnv& get_env) : get_env_(get_env) {}

  // An empty variable counts as unset.
  [[nodiscard]] bool has(const char* name) const { return !text(name).empty(); }
  [[nodiscard]] std::string text(const char* name) const {
    const char* value = get_env_(name);
    return value == nullptr ? std::string() : std::string(value);
  }

  [[nodiscard]] bool is_in_elastic_job() const { return rueda::is_in_elastic_job(get_env_); }

  // From 0 to kMaxRanks.
  [[nodiscard]] Result<Rank> number(const char* name) const {
    const std::string value = text(name);
    Rank result = -1;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), result);
    if (error != std::errc() || end != value.data() + value.size() || result < 0 || result > kMaxRanks)
      return Status(Code::kInvalidArgument, std::string(name) + "='" + value +
                                                "' is refused: it must be a whole number from 0 to " +
                                                std::to_string(kMaxRanks));
    return result;
  }

 private:
  const GetEnv& get_env_;
};

}  // namespace rueda::store
