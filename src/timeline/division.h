// How the time of a job is divided into steps. Pure.
#pragma once

#include <cstdint>

#include "rueda/base/clock.h"

namespace rueda::timeline {

struct Job;

struct Division {
  Nanos from = 0;           // the first step begins with the first mark from here on
  Nanos window = 0;         // without marks: the length of a "step"; 0: there are marks
  Nanos until = INT64_MAX;  // where the last one ends at the latest
  bool is_part = false;     // records are missing elsewhere
};

Division division_of(const Job& job);

}  // namespace rueda::timeline
