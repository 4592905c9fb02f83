// What a thread of the store waits for: sockets, each with a number, and to be woken by other threads.
#pragma once

#include <sys/epoll.h>

#include <cstdint>
#include <span>

#include "rueda/base/unique_fd.h"

namespace rueda::store {

class EventPoll {
 public:
  static constexpr uint64_t kWakeId = 0;  // in epoll_event::data of wake(); sockets have other numbers

  // False: errno says why.
  bool open();
  // operation: EPOLL_CTL_ADD or EPOLL_CTL_MOD. False: errno says why.
  bool watch(int operation, int fd, uint32_t events, uint64_t id) const;
  // How many of the events are filled. timeout_ms: -1 waits for ever.
  int wait(std::span<epoll_event> events, int timeout_ms) const;
  void wake() const;         // any thread
  void end_of_wake() const;  // takes it back, so that it is not told again

 private:
  UniqueFd epoll_, wake_;
};

}  // namespace rueda::store
