// `rueda check-build`: which front ends work here, in the layout of horovodrun --check-build.
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "cli/commands.h"
#include "launch/processes.h"
#include "rueda/base/release.h"

extern char** environ;

namespace rueda::cli {
namespace {

constexpr Nanos kProbeLimit = 20 * kSecond;
// Looks for files only: importing TensorFlow takes seconds.
constexpr const char* kProbe = R"(
import importlib.util, os
spec = importlib.util.find_spec("rueda")
places = list(spec.submodule_search_locations or []) if spec else []
for name in ("tensorflow", "torch"):
    if importlib.util.find_spec(name) and any(os.path.isdir(os.path.join(p, name)) for p in places):
        print(name)
)";

// What a Python program printed; "" if there is no Python or it did not end in time.
std::string output_of_python(const std::string& program) {
  const char* chosen = getenv("RUEDA_PYTHON");
  const std::string own = own_path();
  const std::string beside = own.substr(0, own.rfind('/')) + "/python";  // where a wheel put both
  // X_OK alone is also true of a folder that may be entered.
  std::error_code error;
  const bool is_beside = std::filesystem::is_regular_file(beside, error) && access(beside.c_str(), X_OK) == 0;
  const char* path = getenv("PATH");
  Result<std::string> python = Status(Code::kUnavailable, "no Python");
  for (const char* name : {chosen, is_beside ? beside.c_str() : nullptr, "python", "python3"})
    if (name != nullptr && !python.is_ok())
      python = launch::find_program(name, path != nullptr ? path : "", "");
  Result<launch::Pipe> pipe = launch::make_pipe();
  const UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!python.is_ok() || !pipe.is_ok()) return {};
  std::vector<std::string> env;
  for (char** entry = environ; *entry != nullptr; ++entry) env.emplace_back(*entry);
  Result<pid_t> pid = launch::spawn({.path = python.value(),
                                     .argv = {"python", "-c", program},
                                     .env = env,
                                     .cwd = "",
                                     .in = null.get(),
                                     .out = pipe.value().write.get(),
                                     .err = null.get(),
                                     .death_signal = SIGKILL});
  if (!pid.is_ok()) return {};
  pipe.value().write.reset();
  std::string text;
  std::array<char, 1024> chunk;
  for (const Deadline deadline = Deadline::after(kProbeLimit); !deadline.is_past();) {
    pollfd readable{.fd = pipe.value().read.get(), .events = POLLIN, .revents = 0};
    if (poll(&readable, 1, deadline.timeout_ms()) <= 0) continue;
    const ssize_t size = read(readable.fd, chunk.data(), chunk.size());
    if (size <= 0) break;
    text.append(chunk.data(), static_cast<size_t>(size));
  }
  kill(pid.value(), SIGKILL);  // a no-op for one that has ended: it is ours to reap
  waitpid(pid.value(), nullptr, 0);
  return text;
}

}  // namespace

int check_build_command(const Arguments&) {
  const std::string found = output_of_python(kProbe);
  const auto mark = [&](std::string_view module) {
    return found.find(module) != std::string::npos ? 'X' : ' ';
  };
  fmt::print(
      "rueda v{}:\n\nAvailable Frameworks:\n    [{}] TensorFlow\n    [{}] PyTorch\n    [ ] MXNet\n\n"
      "Available Controllers:\n    [ ] MPI\n    [X] Gloo\n\n"
      "Available Tensor Operations:\n    [ ] NCCL\n    [ ] DDL\n    [ ] CCL\n    [ ] MPI\n    [X] Gloo\n\n"
      "\"Gloo\" stands for rueda's own controller and its operations on CPUs, which need no MPI.\n",
      kRelease, mark("tensorflow"), mark("torch"));
  return 0;
}

}  // namespace rueda::cli
