#include "rueda/store/event_poll.h"

#include <sys/eventfd.h>
#include <unistd.h>

namespace rueda::store {

bool EventPoll::open() {
  epoll_ = UniqueFd(epoll_create1(EPOLL_CLOEXEC));
  wake_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  return epoll_.is_open() && wake_.is_open() && watch(EPOLL_CTL_ADD, wake_.get(), EPOLLIN, kWakeId);
}

bool EventPoll::watch(int operation, int fd, uint32_t events, uint64_t id) const {
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  return epoll_ctl(epoll_.get(), operation, fd, &event) == 0;
}

int EventPoll::wait(std::span<epoll_event> events, int timeout_ms) const {
  return epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout_ms);
}

void EventPoll::wake() const {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof(one));
}

void EventPoll::end_of_wake() const {
  uint64_t wakes = 0;
  [[maybe_unused]] const ssize_t got = read(wake_.get(), &wakes, sizeof(wakes));
}

}  // namespace rueda::store
