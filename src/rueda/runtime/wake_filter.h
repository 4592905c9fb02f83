// Stands between the transports' descriptors and the engine's own thread, which sleeps on them. While another
// thread does the engine's work the filter is closed: what arrives is that thread's, and wakes nobody in
// vain. Engine thread only.
#pragma once

#include <span>
#include <vector>

#include "rueda/base/clock.h"
#include "rueda/base/unique_fd.h"

namespace rueda::runtime {

class WakeFilter {
 public:
  // Borrows the descriptors. Without one of its own (the process has none left) it stays open.
  explicit WakeFilter(std::vector<int> behind);

  void open();
  void close();
  // Closes, but not for ever: when the time has come fds() wake, for whoever sleeps on them to open it. An
  // earlier time that is not past stands, so that to close it so again and again costs nothing.
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
