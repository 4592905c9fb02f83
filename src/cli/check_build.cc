// `rueda check-build`: which front ends work here, in the layout of horovodrun --check-build.
#include <fmt/format.h>

#include <string>

#include "cli/commands.h"
#include "doctor/python.h"
#include "rueda/base/release.h"

namespace rueda::cli {
namespace {

constexpr Nanos kProbeLimit = 20 * kSecond;
// Only looks for files, because importing TensorFlow takes seconds.
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
  const Result<std::string> python = doctor::find_python(own_path());
  std::string text;
  if (!python.is_ok()) return text;
  doctor::PythonProgram(python.value(), {"-c", program}).read_all(Deadline::after(kProbeLimit), text);
  return text;
}

}  // namespace

int check_build_command(const Arguments& arguments) {
  if (!arguments.empty()) {
    const bool is_help = arguments == Arguments{"--help"} || arguments == Arguments{"-h"};
    fmt::print(
        is_help ? stdout : stderr,
        "rueda check-build: it says which frameworks this installation serves, and takes no options\n");
    return is_help ? 0 : kUsageError;
  }
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
