// Of measured and of simulated steps. Pure.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

namespace rueda::simulate {

// The value that so large a share (0..1) is at or below; of two in the middle the upper one. 0 if there are
// none.
inline double quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  return values[static_cast<size_t>(std::lround(share * static_cast<double>(values.size() - 1)))];
}

}  // namespace rueda::simulate
