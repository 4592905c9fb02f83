#include "rueda/runtime/gate.h"

#include <sys/epoll.h>

#include <algorithm>
#include <utility>

namespace rueda::runtime {

Gate::Gate(std::vector<int> behind)
    : behind_(std::move(behind)), epoll_(epoll_create1(EPOLL_CLOEXEC)), fds_(behind_) {
  epoll_event event{.events = EPOLLIN, .data = {}};
  const auto add = [&](int fd) { return epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0; };
  if (epoll_.is_open() && std::ranges::all_of(behind_, add)) {
    fds_ = {epoll_.get()};
  } else {
    epoll_.reset();
  }
}

void Gate::open() { set(true); }
void Gate::close() { set(false); }

void Gate::set(bool is_open) {
  if (is_open == is_open_ || !epoll_.is_open()) return;
  is_open_ = is_open;
  epoll_event event{.events = is_open ? uint32_t{EPOLLIN} : 0U, .data = {}};
  for (const int fd : behind_) epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

}  // namespace rueda::runtime
