// The names of the transports, best first. RUEDA_TRANSPORTS and `rueda bench --transport` accept these; the
// table in runtime/transports.cc has a row for each.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

namespace rueda {

inline constexpr std::array<std::string_view, 2> kTransportNames = {"shm", "tcp"};

constexpr bool is_transport_name(std::string_view name) {
  return std::ranges::find(kTransportNames, name) != kTransportNames.end();
}

// "shm,tcp" with a comma between them.
inline std::string all_transports(std::string_view between) {
  std::string text;
  for (const std::string_view name : kTransportNames)
    text.append(text.empty() ? std::string_view() : between).append(name);
  return text;
}

}  // namespace rueda
