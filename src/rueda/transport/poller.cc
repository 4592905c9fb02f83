#include "rueda/transport/poller.h"

#include <sys/timerfd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>

#include "rueda/base/descriptors.h"

namespace rueda::transport {
namespace {

Status unavailable(const std::string& what) {
  if (is_out_of_descriptors(errno)) return out_of_descriptors(errno);
  return {Code::kUnavailable, what + ": " + std::strerror(errno) + "."};
}

}  // namespace

Result<std::unique_ptr<Poller>> Poller::make() {
  std::unique_ptr<Poller> self(new Poller());  // NOLINT: the constructor is private
  self->epoll_ = UniqueFd(epoll_create1(EPOLL_CLOEXEC));
  if (!self->epoll_.is_open()) return unavailable("cannot create an epoll descriptor");
  self->timer_ = UniqueFd(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!self->timer_.is_open()) return unavailable("cannot create a timer descriptor");
  if (Status status = self->add(self->timer_.get(), self->timer_watch_); !status.is_ok()) return status;
  return self;
}

Status Poller::add(int fd, Watch& watch, uint32_t events) {
  epoll_event event{};
  event.events = events | EPOLLET;
  event.data.ptr = &watch;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
    return unavailable("cannot watch a descriptor");
  return Status::ok();
}

void Poller::remove(int fd) { epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr); }

bool Poller::poll() {
  std::array<epoll_event, 64> events;
  bool is_any = false;
  // Bounded. The remaining events stay in the kernel and keep fd() readable.
  for (int round = 0; round < 4; ++round) {
    const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
    for (int i = 0; i < count; ++i) {
      auto* watch = static_cast<Watch*>(events[static_cast<size_t>(i)].data.ptr);
      watch->ready |= events[static_cast<size_t>(i)].events;
      is_any = true;
    }
    if (count < static_cast<int>(events.size())) break;
  }
  if (timer_watch_.has(EPOLLIN)) {
    uint64_t expirations = 0;
    if (read(timer_.get(), &expirations, sizeof(expirations)) < 0)
      expirations = 0;  // it was set again meanwhile
    timer_watch_.clear(EPOLLIN);
    armed_for_ = 0;
  }
  return is_any;
}

void Poller::wake_at(Nanos when) {
  if (when == armed_for_) return;
  armed_for_ = when;
  set_timer(timer_.get(), when);
}

}  // namespace rueda::transport
