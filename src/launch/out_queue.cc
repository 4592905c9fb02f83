#include "launch/out_queue.h"

#include <unistd.h>

#include <cerrno>

namespace rueda::launch {

bool OutQueue::flush(int fd) {
  while (!is_empty()) {
    const ssize_t written = write(fd, bytes_.data() + sent_, bytes_.size() - sent_);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno == EAGAIN;
    sent_ += static_cast<size_t>(written);
  }
  clear();
  return true;
}

void OutQueue::clear() {
  if (bytes_.capacity() > 2 * max_bytes_)
    bytes_ = {};  // one push was long
  else
    bytes_.clear();
  sent_ = 0;
}

}  // namespace rueda::launch
