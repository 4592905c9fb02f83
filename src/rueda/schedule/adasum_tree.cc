#include "rueda/schedule/adasum_tree.h"

#include <algorithm>

namespace rueda::schedule {

// The right block has m ≤ `width` ranks: rank i of the left block receives from its rank i mod m, and rank j
// of the right block receives from rank j of the left one.
std::vector<AdasumLevel> adasum_levels(Rank n, Rank me) {
  std::vector<AdasumLevel> levels;
  for (Rank width = 1; width < n; width *= 2) {
    const Rank left = me / (2 * width) * (2 * width), right = left + width;
    if (right >= n) continue;
    const Rank m = std::min(n - right, width);
    AdasumLevel& level = levels.emplace_back();
    level.is_left = me < right;
    if (level.is_left) {
      const Rank i = me - left;
      if (i < m) level.to.push_back(right + i);
      level.from = right + i % m;
    } else {
      const Rank j = me - right;
      for (Rank i = j; i < width; i += m) level.to.push_back(left + i);
      level.from = left + j;
    }
  }
  return levels;
}

}  // namespace rueda::schedule
