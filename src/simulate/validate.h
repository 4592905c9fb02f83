// `rueda simulate --validate`: makes the replays and compares. Starts processes; one thread.
#pragma once

#include <string>

#include "rueda/base/status.h"
#include "simulate/validation.h"

namespace rueda::simulate {

struct ValidateOptions {
  std::string binary;  // the rueda command
  bool quick = false;
  int repeats = 3, steps = 5;
  std::string measured;  // a report of an earlier run, whose measurements are taken instead; "" = none
};

// Tells on stderr how far it is.
Result<Validation> validate(const ValidateOptions& options);

}  // namespace rueda::simulate
