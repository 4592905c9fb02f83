#include "rueda/transport/pending_connection.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>

namespace rueda::transport {

PendingConnection::PendingConnection(UniqueFd fd, Handshake handshake, Nanos started)
    : fd_(std::move(fd)), handshake_(std::move(handshake)), started_(started) {}

bool PendingConnection::flush() {
  const Bytes more = handshake_.take_output();
  unsent_.insert(unsent_.end(), more.begin(), more.end());
  if (!more.empty()) has_answered_ = true;
  while (!unsent_.empty()) {
    const ssize_t sent = send(fd_.get(), unsent_.data(), unsent_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    unsent_.erase(unsent_.begin(), unsent_.begin() + sent);
  }
  return true;
}

PendingConnection::Progress PendingConnection::advance() {
  // A handshake has two messages in each direction. Any further rounds would be empty wake-ups.
  for (int round = 0; round < 8; ++round) {
    if (!flush()) return Progress::kHungUp;
    if (handshake_.is_done()) return unsent_.empty() ? Progress::kDone : Progress::kBusy;
    // Peeks, so that bytes behind the handshake stay in the kernel for the channel.
    std::array<std::byte, kMaxHandshakeBytes> buffer;
    const ssize_t got = recv(fd_.get(), buffer.data(), buffer.size(), MSG_PEEK | MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      watch.clear(EPOLLIN);
      return Progress::kBusy;
    }
    if (got <= 0) return Progress::kHungUp;
    Result<size_t> taken = handshake_.feed(std::span(buffer).first(static_cast<size_t>(got)));
    // Takes all of a refused message out of the kernel. If unread bytes were left, closing the socket would
    // destroy our outcome before the other end has read it.
    const size_t consumed = taken.is_ok() ? taken.value() : static_cast<size_t>(got);
    if (recv(fd_.get(), buffer.data(), consumed, MSG_DONTWAIT) < 0) return Progress::kHungUp;
    if (!taken.is_ok()) {
      why_ = taken.status();
      flush();
      return Progress::kRefused;
    }
  }
  return Progress::kBusy;
}

}  // namespace rueda::transport
