// Owns one file descriptor.
#pragma once

#include <unistd.h>

#include <utility>

#include "rueda/base/fork_guard.h"

namespace rueda {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), is_guarded_(std::exchange(other.is_guarded_, false)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
      is_guarded_ = std::exchange(other.is_guarded_, false);
    }
    return *this;
  }
  ~UniqueFd() { reset(); }

  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] bool is_open() const { return fd_ >= 0; }
  int release() {
    if (std::exchange(is_guarded_, false)) fork_guard::forget(fd_);
    return std::exchange(fd_, -1);
  }
  void reset() {
    const bool is_mine = !std::exchange(is_guarded_, false) || fork_guard::forget(fd_);
    const int fd = std::exchange(fd_, -1);
    if (fd >= 0 && is_mine) ::close(fd);
  }

  // For sockets that children of fork() close at once.
  void close_on_fork() { is_guarded_ = fork_guard::add(fd_); }

 private:
  int fd_ = -1;
  bool is_guarded_ = false;
};

}  // namespace rueda
