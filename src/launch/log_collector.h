// `--log-dir` with a URL: the logs are written to a local folder, and Python's fsspec copies them from there
// (python -m rueda.collect), because the drivers of object stores are Python packages.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "rueda/base/clock.h"
#include "rueda/base/status.h"
#include "rueda/base/unique_fd.h"

namespace rueda::launch {

// Whether a --log-dir names a place that needs a copy. Pure. file:///dir does not: see local_log_dir().
bool is_log_url(std::string_view log_dir);
// Refuses a URL that names no folder, or a place that only the process that writes it sees. Pure.
Status check_log_url(std::string_view url);
// "/dir" of "file:///dir"; other texts unchanged. Pure.
std::string local_log_dir(const std::string& log_dir);

Result<std::string> make_log_folder();

// One thread.
class LogCollector {
 public:
  // Waits until the first copy has shown that the place can be written. command: of the ranks, because its
  // Python is likely to have what the place needs.
  Status start(const std::string& folder, const std::string& url, const std::vector<std::string>& command,
               Deadline deadline);
  // Waits for the last copy. Then the folder is removed; it stays if not all could be copied.
  Status finish(Deadline deadline);
  [[nodiscard]] bool is_running() const { return in_.is_open(); }

 private:
  Status launch(const std::string& python);
  void end();
  Status await_news(std::string_view wanted, Deadline deadline);

  std::string folder_, url_;
  pid_t pid_ = 0;
  UniqueFd in_, news_;
};

}  // namespace rueda::launch
