// A file that holds a complete JSON array after every write. One thread.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "rueda/base/status.h"
#include "rueda/base/unique_fd.h"

namespace rueda::trace {

class TraceFile {
 public:
  // Creates or empties the file and writes an empty array.
  Status open(const std::string& path);
  // Opens the file that was closed last, to append to it. Returns false if it has changed since.
  [[nodiscard]] bool reopen();
  // Takes objects with their separators (ChromeFormat::take). Each write replaces the closing bracket of
  // the previous one.
  Status append(const std::vector<std::string>& objects);
  void close();
  [[nodiscard]] bool is_open() const { return fd_.get() >= 0; }

 private:
  Status write_array_part(std::string text);

  UniqueFd fd_;
  std::string path_;
  dev_t device_ = 0;
  ino_t inode_ = 0;
  off_t bracket_ = 0;  // where the closing bracket is
};

}  // namespace rueda::trace
