// Our own stdout or stderr, written without blocking: while a pager sleeps the job must still be watched.
#pragma once

#include <string_view>

#include "launch/out_queue.h"
#include "rueda/base/unique_fd.h"

namespace rueda::launch {

class Console {
 public:
  // fd: STDOUT_FILENO or STDERR_FILENO. Its open file is shared with the shell and others, so it is not made
  // non-blocking itself: a pipe or terminal is opened a second time, a file never blocks.
  explicit Console(int fd);

  void write(std::string_view text);
  void flush();
  void finish();  // blocks until all is written or nobody reads any more
  [[nodiscard]] bool is_full() const { return queue_.is_full(); }
  [[nodiscard]] bool is_empty() const { return queue_.is_empty(); }
  [[nodiscard]] int fd() const { return fd_; }
  // Why text was lost, an errno; 0 while none was, or only because the reader has gone.
  [[nodiscard]] int error() const { return error_; }
  [[nodiscard]] bool is_tty() const { return is_tty_; }

 private:
  UniqueFd own_;
  int fd_;
  bool is_tty_;
  bool is_closed_ = false;  // before we were started
  bool is_dead_ = false;    // its reader has gone: text is dropped, the job goes on (logs are still written)
  int error_ = 0;
  OutQueue queue_;
};

}  // namespace rueda::launch
