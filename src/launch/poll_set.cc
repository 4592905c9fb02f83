#include "launch/poll_set.h"

namespace rueda::launch {

void PollSet::watch(int fd, short events, std::function<void()> action) {
  fds_.push_back({.fd = fd, .events = events, .revents = 0});
  actions_.push_back(std::move(action));
}

void PollSet::wait(Deadline deadline) {
  if (poll(fds_.data(), fds_.size(), deadline.timeout_ms()) <= 0) return;
  for (size_t i = 0; i < fds_.size(); ++i)
    if (fds_[i].revents != 0) actions_[i]();
}

}  // namespace rueda::launch
