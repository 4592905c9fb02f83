// Whether a job that has failed is started again. Pure.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "launch/report.h"

namespace rueda::launch {

// How one try of a job has ended.
enum class TryEnd {
  kWell,         // every rank ended with 0
  kFailed,       // a rank or a host failed
  kInterrupted,  // somebody stopped the job
  kNotStarted    // a host or the command was not there, so no rank could do anything
};
// Of ranks that were started, or were to be started.
TryEnd judge_end(std::span<const Ending> endings);

class Restarts {
 public:
  explicit Restarts(int most) : most_(most) {}

  // A try has ended. Whether another one follows. What is not there at the first try is not there at the next
  // one; later it may be a host that is being started again.
  bool follows(TryEnd end, int status);
  // How often the job was started again.
  [[nodiscard]] int count() const { return count_; }
  // What the user is told after follows(): that the job is started again, or how all tries ended if there
  // were several. "": nothing.
  [[nodiscard]] std::string notice() const;

 private:
  int most_;
  int count_ = 0;
  bool follows_ = false;
  std::vector<int> statuses_;
};

}  // namespace rueda::launch
