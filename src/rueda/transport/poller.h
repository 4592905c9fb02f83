// epoll and one timer behind one descriptor. Edge-triggered: events collect in a Watch until its owner
// meets EAGAIN and clears them. A socket that nobody wants to read therefore costs nothing and never makes
// the thread spin.
#pragma once

#include <sys/epoll.h>

#include <cstdint>
#include <memory>

#include "rueda/base/clock.h"
#include "rueda/base/status.h"
#include "rueda/base/unique_fd.h"

namespace rueda::transport {

// The events of a socket whose other side has closed the connection, or which is broken.
inline constexpr uint32_t kHangup = EPOLLRDHUP | EPOLLHUP | EPOLLERR;

struct Watch {
  uint32_t ready = 0;  // EPOLLIN, EPOLLOUT, EPOLLRDHUP, EPOLLERR, EPOLLHUP
  [[nodiscard]] bool has(uint32_t events) const { return (ready & events) != 0; }
  void clear(uint32_t events) { ready &= ~events; }
};

class Poller {
 public:
  static Result<std::unique_ptr<Poller>> make();

  // The watch must stay at its address until remove(fd). Call remove() before closing the descriptor: a
  // forked child may hold it open, and the kernel would then go on reporting it.
  static constexpr uint32_t kAll = EPOLLIN | EPOLLOUT | EPOLLRDHUP;
  Status add(int fd, Watch& watch, uint32_t events = kAll);
  void remove(int fd);

  bool poll();               // collects events without waiting; true if there were any
  void wake_at(Nanos when);  // makes fd() readable at that time; 0 = never
  [[nodiscard]] int fd() const { return epoll_.get(); }

 private:
  Poller() = default;
  UniqueFd epoll_, timer_;
  Watch timer_watch_;
  Nanos armed_for_ = 0;
};

}  // namespace rueda::transport
