// `rueda simulate --validate`: makes the replays and compares. Starts processes; one thread.
#pragma once

#include <optional>
#include <string>

#include "rueda/base/status.h"
#include "simulate/validation.h"

namespace rueda::simulate {

struct ValidateOptions {
  std::string binary;  // the rueda command
  bool quick = false;
  int repeats = 3, steps = 5;
  std::string program;   // a line for sh: a training program that is measured too; "" = none
  std::string measured;  // a report of an earlier run, which is gone on with if it was interrupted; "" = none
  std::optional<Calibration> calibration;  // what replays are predicted with; none = it is fitted
  std::string keep;                        // the file that has all measurements so far; "" = none
};

// Tells on stderr how far it is. A replay that fails costs the others nothing.
Result<Validation> validate(const ValidateOptions& options);
// Fits costs to a few short replays, in about a minute, and predicts nothing. binary: the rueda command.
Result<Validation> calibrate(const std::string& binary);

}  // namespace rueda::simulate
