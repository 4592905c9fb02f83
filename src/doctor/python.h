// Runs Python programs that answer a question, with a deadline.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "rueda/base/clock.h"
#include "rueda/base/status.h"
#include "rueda/base/unique_fd.h"

namespace rueda::doctor {

// RUEDA_PYTHON, else the one beside this program (where a wheel put both), else the one in PATH.
Result<std::string> find_python(const std::string& own_path);

// A running program whose output is read. The destructor ends and reaps it if nothing did so before.
class PythonProgram {
 public:
  // variables: "NAME=value"; they override this process's. stderr is discarded, or read together with stdout
  // if it is kept.
  PythonProgram(const std::string& python, std::vector<std::string> arguments,
                const std::vector<std::string>& variables = {}, bool keeps_errors = false);
  PythonProgram(PythonProgram&& other) noexcept;
  PythonProgram& operator=(PythonProgram&&) = delete;
  ~PythonProgram();

  // All it prints until it ends; false when it did not end in time or could not be started.
  bool read_all(Deadline deadline, std::string& text);
  // After read_all(): its exit status, or minus the signal that ended it.
  [[nodiscard]] int exit_status() const { return status_; }

 private:
  void end();

  pid_t pid_ = -1;
  UniqueFd output_;
  int status_ = -1;
};

}  // namespace rueda::doctor
