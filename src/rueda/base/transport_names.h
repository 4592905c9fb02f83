// The names of the transports, best first. RUEDA_TRANSPORTS and `rueda bench --transport` accept these; the
// table in runtime/transports.cc has a row for each.
#pragma once

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>

namespace rueda {

inline constexpr std::array<std::string_view, 3> kTransportNames = {"shm", "ucx", "tcp"};
// Those that may be used where RUEDA_TRANSPORTS names none: they need nothing but the kernel.
inline constexpr std::array<std::string_view, 2> kDefaultTransports = {"shm", "tcp"};

constexpr bool is_transport_name(std::string_view name) {
  return std::ranges::find(kTransportNames, name) != kTransportNames.end();
}

inline std::string join_names(std::span<const std::string_view> names, std::string_view between) {
  std::string text;
  for (const std::string_view name : names)
    text.append(text.empty() ? std::string_view() : between).append(name);
  return text;
}
// "shm,ucx,tcp" with a comma between them.
inline std::string all_transports(std::string_view between) { return join_names(kTransportNames, between); }
inline std::string default_transports() { return join_names(kDefaultTransports, ","); }

}  // namespace rueda
