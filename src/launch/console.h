// The stdout or stderr of the launcher, written without blocking: the job must be watched even while a pager
// does not read.
#pragma once

#include <string_view>

#include "launch/out_queue.h"
#include "rueda/base/unique_fd.h"

namespace rueda::launch {

class Console {
 public:
  // fd: STDOUT_FILENO or STDERR_FILENO. The shell and others share its open file, so it must not be made
  // non-blocking. A pipe or a terminal is opened a second time instead; a regular file never blocks.
  explicit Console(int fd);

  void write(std::string_view text);
  void flush();
  void finish();  // blocks until everything is written or the reader is gone
  [[nodiscard]] bool is_full() const { return queue_.is_full(); }
  [[nodiscard]] bool is_empty() const { return queue_.is_empty(); }
  [[nodiscard]] int fd() const { return fd_; }
  // The errno with which text was lost. 0 if none was lost, or only because the reader is gone.
  [[nodiscard]] int error() const { return error_; }
  [[nodiscard]] bool is_tty() const { return is_tty_; }
  [[nodiscard]] size_t columns() const;  // of the terminal; 0 = unknown

 private:
  UniqueFd own_;
  int fd_;
  bool is_tty_;
  bool is_closed_ = false;  // it was closed when the launcher was started
  bool is_dead_ = false;    // the reader is gone: text is dropped, but the job and its logs go on
  int error_ = 0;
  OutQueue queue_;
};

}  // namespace rueda::launch
