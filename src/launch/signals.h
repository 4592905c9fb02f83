// The signals that reach the launcher, as events of its loop.
#pragma once

#include <vector>

#include "rueda/base/unique_fd.h"

namespace rueda::launch {

// One thread.
class Signals {
 public:
  // Blocks the signals that end, stop or inform a job, except those that we were started to ignore; they are
  // then read from fd().
  void block();
  [[nodiscard]] int fd() const { return fd_.get(); }  // -1 before block()
  std::vector<int> read();                            // those that have come, without SIGCHLD
  static void unblock();                              // they have their usual effect again

 private:
  UniqueFd fd_;
};

}  // namespace rueda::launch
