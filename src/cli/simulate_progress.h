// What `rueda simulate` shows of a prediction that takes long.
#pragma once

#include "rueda/base/clock.h"
#include "simulate/prediction.h"

namespace rueda::cli {

// Rewrites one line of the terminal on standard error, and takes it away in the end. Where standard error is
// no terminal, nothing is shown.
class SimulateProgress {
 public:
  SimulateProgress();
  ~SimulateProgress();
  SimulateProgress(const SimulateProgress&) = delete;
  SimulateProgress& operator=(const SimulateProgress&) = delete;

  void show(const simulate::Progress& progress);

 private:
  bool is_terminal_;
  bool is_shown_ = false;
  Nanos next_;  // when it is worth a line
};

}  // namespace rueda::cli
