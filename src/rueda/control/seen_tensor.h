// A collective that may become part of a learned plan, as the coordinator has seen it run. Pure values.
#pragma once

#include <cstdint>

#include "rueda/base/clock.h"
#include "rueda/control/messages.h"

namespace rueda::control {

struct SeenTensor {
  Bucket bucket;  // with this tensor alone
  int64_t bytes = 0;
  int64_t number = 0;  // in its name; 0: the name recurs as it is
  uint64_t seen = 0,
           started = 0;  // when it was first submitted and when it was answered, by a clock of events
  Nanos ready = 0;       // when it was first submitted

  [[nodiscard]] const Entry& entry() const { return bucket.entries.front(); }
};

}  // namespace rueda::control
