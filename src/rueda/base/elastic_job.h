// Whether a process belongs to an elastic job, as its environment says. Pure.
#pragma once

#include <functional>
#include <string_view>

namespace rueda {

// Its launcher names it, or the members decide the views themselves.
inline bool is_in_elastic_job(const std::function<const char*(const char*)>& get_env) {
  const auto text = [&](const char* name) {
    const char* const value = get_env(name);
    return std::string_view(value == nullptr ? "" : value);
  };
  return !text("RUEDA_ELASTIC_UID").empty() || text("RUEDA_ELASTIC") == "members";
}

}  // namespace rueda
