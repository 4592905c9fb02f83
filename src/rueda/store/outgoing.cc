#include "rueda/store/outgoing.h"

#include <sys/socket.h>

#include <cerrno>

namespace rueda::store {

bool Outgoing::flush(int fd) {
  while (sent < bytes.size()) {
    const ssize_t count = send(fd, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    sent += static_cast<size_t>(count);
  }
  bytes.clear();
  sent = 0;
  return true;
}

}  // namespace rueda::store
