// A folder of this process alone, which goes with it.
#pragma once

#include <string>
#include <utility>

#include "rueda/base/status.h"

namespace rueda::bench {

class TemporaryFolder {  // the destructor removes it with its contents
 public:
  // In TMPDIR; its name begins so: "rueda-bench".
  static Result<TemporaryFolder> make(const std::string& name);
  TemporaryFolder(TemporaryFolder&& other) noexcept : path_(std::exchange(other.path_, "")) {}
  TemporaryFolder& operator=(TemporaryFolder&&) = delete;
  ~TemporaryFolder();
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  explicit TemporaryFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;  // "": another one has it
};

}  // namespace rueda::bench
