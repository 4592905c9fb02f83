// Slices of one row must not overlap. Those that do are drawn in further lanes.
#pragma once

#include <algorithm>
#include <vector>

#include "rueda/base/clock.h"

namespace rueda::timeline {

class Lanes {
 public:
  // The first lane in which everything has ended.
  int take(Nanos begin, Nanos end) {
    auto free = std::ranges::find_if(ends_, [&](Nanos other) { return other <= begin; });
    if (free == ends_.end()) free = ends_.insert(ends_.end(), end);
    *free = end;
    return static_cast<int>(free - ends_.begin());
  }

 private:
  std::vector<Nanos> ends_;
};

}  // namespace rueda::timeline
