// Runs Python programs that answer a question, with a deadline.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "rueda/base/clock.h"
#include "rueda/base/status.h"
#include "rueda/base/unique_fd.h"

namespace rueda::doctor {

// RUEDA_PYTHON if it is set, otherwise the Python beside this program (a wheel installs both there),
// otherwise the one in PATH.
Result<std::string> find_python(const std::string& own_path);

// A running program whose output is read. If it still runs, the destructor ends it and reaps it.
class PythonProgram {
 public:
  // variables: "NAME=value"; they override those of this process. stderr is either read together with
  // stdout or discarded.
  PythonProgram(const std::string& python, std::vector<std::string> arguments,
                const std::vector<std::string>& variables = {}, bool keeps_errors = false);
  PythonProgram(PythonProgram&& other) noexcept;
  PythonProgram& operator=(PythonProgram&&) = delete;
  ~PythonProgram();

  // Reads everything that the program prints until it ends. Returns false if it did not end in time or could
  // not be started.
  bool read_all(Deadline deadline, std::string& text);
  // Valid after read_all(): the exit status, or minus the signal that ended the program.
  [[nodiscard]] int exit_status() const { return status_; }

 private:
  void end();

  pid_t pid_ = -1;
  UniqueFd output_;
  int status_ = -1;
};

}  // namespace rueda::doctor
