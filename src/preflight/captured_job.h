// A job of the launcher in a child process, whose output is read instead of shown. Several can run at once.
#pragma once

#include <sys/types.h>

#include <string>

#include "launch/job_options.h"
#include "rueda/base/clock.h"
#include "rueda/base/unique_fd.h"

namespace rueda::preflight {

// One thread. If the job still runs, the destructor ends it and reaps it. The calling process must have no
// other threads when start() is called, because it forks.
class CapturedJob {
 public:
  explicit CapturedJob(launch::RunOptions options);
  CapturedJob(CapturedJob&& other) noexcept;
  CapturedJob& operator=(CapturedJob&&) = delete;
  ~CapturedJob();

  // Reads what the ranks and the launcher write until the job ends. False: it did not end in time.
  bool read_all(Deadline deadline);
  [[nodiscard]] const std::string& out() const { return out_; }  // stdout of the ranks
  [[nodiscard]] const std::string& err() const {
    return err_;
  }  // stderr of the ranks, and the launcher's news

 private:
  void end();

  pid_t pid_ = -1;
  UniqueFd out_fd_, err_fd_;
  std::string out_, err_;
};

}  // namespace rueda::preflight
