// Which ranks belong to which process set, as far as plans need it. Pure values.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "rueda/base/types.h"

namespace rueda::control {

// By id: ascending world ranks. Set 0, the world, is not among them.
using SetMembers = std::map<int32_t, std::vector<Rank>>;

inline bool is_known(const SetMembers& sets, int32_t set) { return set == 0 || sets.contains(set); }

// The set is known.
inline bool is_member(const SetMembers& sets, int32_t set, Rank rank) {
  if (set == 0) return true;
  const std::vector<Rank>& members = sets.at(set);
  return std::ranges::binary_search(members, rank);
}

// The place of a rank among the members, to whom it belongs.
inline size_t index_in(const SetMembers& sets, int32_t set, Rank rank) {
  if (set == 0) return static_cast<size_t>(rank);
  const std::vector<Rank>& members = sets.at(set);
  return static_cast<size_t>(std::ranges::lower_bound(members, rank) - members.begin());
}

// Whether a rank belongs to both. Both are known.
inline bool overlap(const SetMembers& sets, int32_t one, int32_t other) {
  if (one == other || one == 0 || other == 0) return true;
  const std::vector<Rank>&a = sets.at(one), &b = sets.at(other);
  for (auto x = a.begin(), y = b.begin(); x != a.end() && y != b.end();) {
    if (*x == *y) return true;
    *x < *y ? ++x : ++y;
  }
  return false;
}

}  // namespace rueda::control
