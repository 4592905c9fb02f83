#include "wire.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

namespace rueda::fake_nccl {
namespace {

constexpr int kLookMs = 5;  // between two looks at the abort

// The name of a member's socket; the first byte of the path stays null.
socklen_t fill(sockaddr_un& address, const std::string& name, int rank) {
  const std::string text = name + "-" + std::to_string(rank);
  address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, text.data(), std::min(text.size(), sizeof(address.sun_path) - 1));
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
}

int make_socket() { return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); }

}  // namespace

Wire::~Wire() { close(); }

void Wire::close() {
  for (int& fd : fds_) {
    if (fd < 0) continue;
    shutdown(fd, SHUT_RDWR);
    ::close(fd);
    fd = -1;
  }
}

Wait Wire::dial(const std::string& name, int peer) {
  sockaddr_un address;
  const socklen_t length = fill(address, name, peer);
  while (!is_aborted_) {
    const int fd = make_socket();
    if (fd < 0) return Wait::kLost;
    if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), length) == 0) {
      const auto mine = static_cast<int32_t>(me_);
      fds_[static_cast<size_t>(peer)] = fd;
      return write(fd, &mine, sizeof(mine)) == sizeof(mine) ? Wait::kDone : Wait::kLost;
    }
    ::close(fd);
    std::this_thread::sleep_for(std::chrono::milliseconds(kLookMs));  // the peer does not listen yet
  }
  return Wait::kAborted;
}

Wait Wire::accept_one(int listener) {
  while (!is_aborted_) {
    pollfd ready{.fd = listener, .events = POLLIN, .revents = 0};
    if (poll(&ready, 1, kLookMs) <= 0) continue;
    const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) continue;
    int32_t peer = -1;
    ready = {.fd = fd, .events = POLLIN, .revents = 0};
    while (!is_aborted_ && poll(&ready, 1, kLookMs) <= 0) {
    }
    const bool is_known = read(fd, &peer, sizeof(peer)) == sizeof(peer) && peer > me_ &&
                          static_cast<size_t>(peer) < fds_.size();
    if (!is_known) {
      ::close(fd);
      continue;
    }
    fds_[static_cast<size_t>(peer)] = fd;
    return Wait::kDone;
  }
  return Wait::kAborted;
}

Wait Wire::connect(const std::string& name, std::span<Hello> hellos) {
  const auto size = static_cast<int>(fds_.size());
  sockaddr_un address;
  const socklen_t length = fill(address, name, me_);
  const int listener = make_socket();
  Wait how = Wait::kLost;
  if (bind(listener, reinterpret_cast<const sockaddr*>(&address), length) == 0 && listen(listener, size) == 0)
    how = Wait::kDone;
  for (int peer = 0; peer < me_ && how == Wait::kDone; ++peer) how = dial(name, peer);
  for (int peer = me_ + 1; peer < size && how == Wait::kDone; ++peer) how = accept_one(listener);
  ::close(listener);
  if (how != Wait::kDone) return how;
  std::vector<Transfer> transfers;
  const auto bytes_of = [](Hello& hello) { return reinterpret_cast<std::byte*>(&hello); };
  for (int peer = 0; peer < size; ++peer) {
    if (peer == me_) continue;
    Hello& theirs = hellos[static_cast<size_t>(peer)];
    transfers.push_back({peer, true, bytes_of(hellos[static_cast<size_t>(me_)]), sizeof(Hello)});
    transfers.push_back({peer, false, bytes_of(theirs), sizeof(Hello)});
  }
  return exchange(transfers);
}

Wait Wire::exchange(std::span<const Transfer> transfers) {
  std::vector<Transfer> open;
  for (const Transfer& transfer : transfers)
    if (transfer.bytes > 0) open.push_back(transfer);
  while (!open.empty()) {
    if (is_aborted_) return Wait::kAborted;
    std::vector<pollfd> ready;
    std::vector<size_t> whose;
    for (size_t i = 0; i < open.size(); ++i) {
      const auto is_before = [&](const Transfer& other) {
        return other.peer == open[i].peer && other.is_send == open[i].is_send;
      };
      if (std::any_of(open.begin(), open.begin() + static_cast<ptrdiff_t>(i), is_before)) continue;
      const short events = open[i].is_send ? POLLOUT : POLLIN;
      ready.push_back({.fd = fds_[static_cast<size_t>(open[i].peer)], .events = events, .revents = 0});
      whose.push_back(i);
    }
    poll(ready.data(), ready.size(), kLookMs);
    for (size_t k = 0; k < ready.size(); ++k) {
      if (ready[k].revents == 0) continue;
      Transfer& left = open[whose[k]];
      const ssize_t moved = left.is_send ? send(ready[k].fd, left.data, left.bytes, MSG_NOSIGNAL)
                                         : recv(ready[k].fd, left.data, left.bytes, 0);
      if (moved < 0 && (errno == EAGAIN || errno == EINTR)) continue;
      if (moved <= 0) return Wait::kLost;
      left.data += moved;
      left.bytes -= static_cast<size_t>(moved);
    }
    std::erase_if(open, [](const Transfer& each) { return each.bytes == 0; });
  }
  return Wait::kDone;
}

}  // namespace rueda::fake_nccl
