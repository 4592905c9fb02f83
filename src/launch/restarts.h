// Whether a job that has failed is started again, and when. Pure.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "launch/ending.h"
#include "rueda/base/clock.h"

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

// A job that fails again and again should neither fill a disk with its logs nor keep a server from coming
// back. A try of this length has got somewhere, so the pauses begin anew.
inline constexpr Nanos kLongestPause = 30 * kSecond, kLongTry = 60 * kSecond;

class Restarts {
 public:
  // first_pause: from the first failure to the next try. Each pause is twice as long as the one before.
  Restarts(int most, Nanos first_pause) : most_(most), first_pause_(first_pause) {}

  // A try has ended. Whether another one follows. What is not there at the first try is not there at the next
  // one; later it may be a host that is being started again.
  bool follows(TryEnd end, int status, Nanos lasted);
  // The user wants no further try.
  void give_up() { follows_ = false; }
  // How often the job was started again.
  [[nodiscard]] int count() const { return count_; }
  // After follows(): how long to wait before the next try.
  [[nodiscard]] Nanos pause() const { return pause_; }
  // What the user is told after follows(): that the job is started again, or how all tries ended if there
  // were several. "": nothing.
  [[nodiscard]] std::string notice() const;

 private:
  int most_;
  Nanos first_pause_;
  int count_ = 0;
  bool follows_ = false;
  Nanos pause_ = 0;
  std::vector<int> statuses_;
};

}  // namespace rueda::launch
