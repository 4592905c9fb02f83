// Remembers which steps last read and wrote each element of a buffer, so that the builder can order
// conflicting steps. It lives as long as the building of one schedule. One thread.
#pragma once

#include <cstdint>
#include <vector>

#include "rueda/schedule/interval_map.h"

namespace rueda::schedule {

class Hazards {
 public:
  // Appends the steps that must come before `step`: earlier writers of what it reads …
  void read(int32_t step, int64_t begin, int64_t end, std::vector<int32_t>& after);
  // … and earlier readers (or the writer, if nobody read since) of what it writes.
  void write(int32_t step, int64_t begin, int64_t end, std::vector<int32_t>& after);

 private:
  struct Accesses {
    int32_t writer = -1;
    std::vector<int32_t> readers;  // since writer
  };
  IntervalMap<Accesses> accesses_;
};

}  // namespace rueda::schedule
