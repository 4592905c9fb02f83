#include "rueda/runtime/wake_filter.h"

#include <sys/epoll.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <utility>

namespace rueda::runtime {

WakeFilter::WakeFilter(std::vector<int> behind)
    : behind_(std::move(behind)),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      timer_(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)),
      fds_(behind_) {
  epoll_event event{.events = EPOLLIN, .data = {}};
  const auto add = [&](int fd) { return epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0; };
  if (epoll_.is_open() && timer_.is_open() && add(timer_.get()) && std::ranges::all_of(behind_, add)) {
    fds_ = {epoll_.get()};
  } else {
    epoll_.reset();
  }
}

void WakeFilter::open() {
  if (armed_for_ != 0) arm(0);
  set(true);
}

void WakeFilter::close() { set(false); }

void WakeFilter::close_until(Nanos when, Nanos now) {
  if (!epoll_.is_open()) return;
  set(false);
  if (armed_for_ <= now) arm(when);
}

void WakeFilter::set(bool is_open) {
  if (is_open == is_open_ || !epoll_.is_open()) return;
  is_open_ = is_open;
  epoll_event event{.events = is_open ? uint32_t{EPOLLIN} : 0U, .data = {}};
  for (const int fd : behind_) epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

void WakeFilter::arm(Nanos when) {
  armed_for_ = when;
  set_timer(timer_.get(), when);
}

}  // namespace rueda::runtime
