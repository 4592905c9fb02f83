// A door between the transports' descriptors and the engine's own thread, which sleeps on them. While another
// thread does the engine's work the door is closed: what arrives is that thread's, and wakes nobody in vain.
// Engine thread only.
#pragma once

#include <span>
#include <vector>

#include "rueda/base/unique_fd.h"

namespace rueda::runtime {

class Gate {
 public:
  // Borrows the descriptors. Without one of its own (the process has none left) it stays open.
  explicit Gate(std::vector<int> behind);

  void open();
  void close();
  // What to poll for input.
  [[nodiscard]] std::span<const int> fds() const { return fds_; }

 private:
  void set(bool is_open);

  std::vector<int> behind_;
  UniqueFd epoll_;
  std::vector<int> fds_;
  bool is_open_ = true;
};

}  // namespace rueda::runtime
