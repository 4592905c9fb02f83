// Ends the processes that the ranks of a host left running when they ended, including those with a session of
// their own or a double fork.
#pragma once

#include <sys/types.h>

#include <span>

#include "rueda/base/clock.h"

namespace rueda::launch {

// One thread, of the process whose descendants they are.
class Leftovers {
 public:
  // Called again and again. Returns whether it is over: none is left, or one cannot be killed. spared: these
  // children of ours, and what is below them, are no leftovers.
  bool end(Nanos now, std::span<const pid_t> spared = {});
  [[nodiscard]] bool are_ending() const { return began_ != 0 && !is_over_; }
  [[nodiscard]] bool are_over() const { return is_over_; }

 private:
  Nanos began_ = 0;  // 0 = it has not begun
  bool is_over_ = false;
};

}  // namespace rueda::launch
