#include "launch/console.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "launch/agent_messages.h"

namespace rueda::launch {
namespace {

constexpr size_t kMaxConsoleBytes = 1 << 20;

}  // namespace

Console::Console(int fd) : fd_(fd), is_tty_(isatty(fd) == 1), queue_(kMaxConsoleBytes) {
  struct stat info {};
  if (fstat(fd, &info) != 0) {
    is_dead_ = is_closed_ = true;
    return;
  }
  if (!S_ISFIFO(info.st_mode) && !S_ISCHR(info.st_mode)) return;
  own_ = UniqueFd(
      open(fmt::format("/proc/self/fd/{}", fd).c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (own_.is_open()) fd_ = own_.get();
}

void Console::write(std::string_view text) {
  if (is_closed_ && !text.empty()) error_ = EBADF;
  if (is_dead_) return;
  queue_.push(as_bytes(text));
}

void Console::flush() {
  if (is_dead_ || queue_.flush(fd_)) return;
  is_dead_ = true;
  if (errno != EPIPE && errno != EIO) error_ = errno;  // EIO: the terminal was closed
  queue_.clear();
}

size_t Console::columns() const {
  winsize size{};
  return ioctl(fd_, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

void Console::finish() {
  while (!queue_.is_empty()) {
    pollfd writable{.fd = fd_, .events = POLLOUT, .revents = 0};
    poll(&writable, 1, -1);  // waits as long as a plain write would; Ctrl-C ends it
    flush();
  }
}

}  // namespace rueda::launch
