// epoll and one timer behind one descriptor. Edge-triggered: readiness collects in a Watch until its owner,
// who has met EAGAIN, clears it. So a socket nobody wants to read from costs nothing and never spins.
#pragma once

#include <sys/epoll.h>

#include <cstdint>
#include <memory>

#include "rueda/base/clock.h"
#include "rueda/base/status.h"
#include "rueda/base/unique_fd.h"

namespace rueda::transport {

struct Watch {
  uint32_t ready = 0;  // EPOLLIN, EPOLLOUT, EPOLLRDHUP, EPOLLERR, EPOLLHUP
  [[nodiscard]] bool has(uint32_t events) const { return (ready & events) != 0; }
  void clear(uint32_t events) { ready &= ~events; }
};

class Poller {
 public:
  static Result<std::unique_ptr<Poller>> make();

  // The watch must stay where it is until remove(fd). Call remove before closing: a forked child may hold the
  // descriptor open, and then the kernel would go on reporting it.
  static constexpr uint32_t kAll = EPOLLIN | EPOLLOUT | EPOLLRDHUP;
  Status add(int fd, Watch& watch, uint32_t events = kAll);
  void remove(int fd);

  bool poll();               // collects readiness without waiting; true if there was any
  void wake_at(Nanos when);  // makes fd() readable then; 0 = never
  [[nodiscard]] int fd() const { return epoll_.get(); }

 private:
  Poller() = default;
  UniqueFd epoll_, timer_;
  Watch timer_watch_;
  Nanos armed_for_ = 0;
};

}  // namespace rueda::transport
