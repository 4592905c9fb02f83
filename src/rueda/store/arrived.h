// What ranks tell a launcher that serves the store: they have come to init. Pure.
#pragma once

#include <string_view>
#include <vector>

#include "rueda/base/types.h"
#include "rueda/store/entries.h"

namespace rueda::store {

// A table of entries without a value.
inline constexpr std::string_view kArrived = "arrived/";

// Empty if it is no such key.
inline std::vector<Rank> parse_arrivals(std::string_view key, std::string_view value) {
  std::vector<Rank> ranks;
  if (!key.starts_with(kArrived)) return ranks;
  const Result<Entries> came = decode_entries(value);
  if (!came.is_ok()) return ranks;
  for (const auto& [rank, nothing] : came.value()) ranks.push_back(rank);
  return ranks;
}

}  // namespace rueda::store
