// Stands between the transports' descriptors and the engine's own thread, which sleeps on them. While another
// thread does the engine's work, the filter is closed: what arrives is for that thread, and wakes no other in
// vain. Engine thread only.
#pragma once

#include <span>
#include <vector>

#include "rueda/base/clock.h"
#include "rueda/base/unique_fd.h"

namespace rueda::runtime {

class WakeFilter {
 public:
  // Borrows the descriptors. If the process has none left for the filter itself, the filter stays open.
  explicit WakeFilter(std::vector<int> behind);

  void open();
  void close();
  // Closes until a time at which fds() wake the thread that sleeps on them, so that it can open the filter.
  // An earlier time that has not passed is kept, so that repeated calls cost nothing.
  void close_until(Nanos when, Nanos now);
  // What to poll for input.
  [[nodiscard]] std::span<const int> fds() const { return fds_; }

 private:
  void set(bool is_open);
  void arm(Nanos when);

  std::vector<int> behind_;
  UniqueFd epoll_, timer_;
  std::vector<int> fds_;
  bool is_open_ = true;
  Nanos armed_for_ = 0;  // 0 = not at all
};

}  // namespace rueda::runtime
