#include "doctor/python.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "launch/processes.h"

extern char** environ;

namespace rueda::doctor {

Result<std::string> find_python(const std::string& own_path) {
  const char* chosen = getenv("RUEDA_PYTHON");
  const std::string beside = own_path.substr(0, own_path.rfind('/')) + "/python";
  // X_OK alone is also true for a directory that may be entered.
  std::error_code error;
  const bool is_beside = std::filesystem::is_regular_file(beside, error) && access(beside.c_str(), X_OK) == 0;
  const char* path = getenv("PATH");
  Result<std::string> python =
      Status(Code::kUnavailable, "there is no Python in PATH; set RUEDA_PYTHON to the path of one");
  for (const char* name : {chosen, is_beside ? beside.c_str() : nullptr, "python", "python3"})
    if (name != nullptr && !python.is_ok()) {
      Result<std::string> found = launch::find_program(name, path != nullptr ? path : "", "");
      if (found.is_ok()) python = std::move(found);
    }
  return python;
}

PythonProgram::PythonProgram(const std::string& python, std::vector<std::string> arguments,
                             const std::vector<std::string>& variables, bool keeps_errors) {
  Result<launch::Pipe> pipe = launch::make_pipe();
  const UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!pipe.is_ok()) return;
  launch::Variables env = launch::forwarded_environment(environ, false);
  for (const std::string& variable : variables) {
    const size_t equals = variable.find('=');
    env.emplace_back(variable.substr(0, equals), variable.substr(equals + 1));
  }
  arguments.insert(arguments.begin(), python);  // its own path, from which Python derives its environment
  const int out = pipe.value().write.get();
  Result<pid_t> pid = launch::spawn({.path = python,
                                     .argv = std::move(arguments),
                                     .env = launch::to_environment(env),
                                     .cwd = "",
                                     .in = null.get(),
                                     .out = out,
                                     .err = keeps_errors ? out : null.get(),
                                     .death_signal = SIGKILL});
  if (!pid.is_ok()) return;
  pid_ = pid.value();
  output_ = std::move(pipe.value().read);
}

PythonProgram::PythonProgram(PythonProgram&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), output_(std::move(other.output_)), status_(other.status_) {}

PythonProgram::~PythonProgram() { end(); }

bool PythonProgram::read_all(Deadline deadline, std::string& text) {
  if (pid_ < 0) return false;
  std::array<char, 4096> chunk;
  bool has_ended = false;
  while (!has_ended && !deadline.is_past()) {
    pollfd readable{.fd = output_.get(), .events = POLLIN, .revents = 0};
    if (poll(&readable, 1, deadline.timeout_ms()) <= 0) continue;
    const ssize_t size = read(readable.fd, chunk.data(), chunk.size());
    has_ended = size <= 0;
    if (!has_ended) text.append(chunk.data(), static_cast<size_t>(size));
  }
  // Its output is closed, so it has ended or will end in a moment.
  siginfo_t info{};
  for (; has_ended && !deadline.is_past(); usleep(1000))
    if (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT | WNOHANG) == 0 &&
        info.si_pid == pid_)
      break;
  has_ended = has_ended && info.si_pid == pid_;
  end();
  return has_ended;
}

void PythonProgram::end() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);  // no effect if it has ended: we have not reaped it yet
  int status = 0;
  waitpid(pid_, &status, 0);
  status_ = WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
  pid_ = -1;
}

}  // namespace rueda::doctor
