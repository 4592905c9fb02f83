// The descriptors that a loop waits for, each with what to do when it is ready.
#pragma once

#include <poll.h>

#include <functional>
#include <vector>

#include "rueda/base/clock.h"

namespace rueda::launch {

// One thread. Made again for every turn of the loop.
class PollSet {
 public:
  void watch(int fd, short events, std::function<void()> action);  // a negative fd is never ready
  // Waits for one that is ready, until the deadline at most, and runs the actions of all that are.
  void wait(Deadline deadline);

 private:
  std::vector<pollfd> fds_;
  std::vector<std::function<void()>> actions_;
};

}  // namespace rueda::launch
