// What a rank tells a launcher that serves the store: it has come to init. Pure.
#pragma once

#include <charconv>
#include <optional>
#include <string>
#include <string_view>

#include "rueda/base/types.h"

namespace rueda::store {

inline constexpr std::string_view kArrived = "arrived/";

inline std::string arrival_key(Rank rank) { return std::string(kArrived) + std::to_string(rank); }

// Empty if it is no such key.
inline std::optional<Rank> parse_arrival_key(std::string_view key) {
  if (!key.starts_with(kArrived)) return std::nullopt;
  Rank rank = -1;
  const auto [end, error] = std::from_chars(key.data() + kArrived.size(), key.data() + key.size(), rank);
  if (error != std::errc() || end != key.data() + key.size() || rank < 0) return std::nullopt;
  return rank;
}

}  // namespace rueda::store
