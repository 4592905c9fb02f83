#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "cli/commands.h"
#include "cli/parse_error.h"
#include "doctor/doctor.h"
#include "doctor/mpi.h"

namespace rueda::cli {
namespace {

constexpr const char* kDoctorHelp = R"(rueda doctor: what this machine offers, and what rueda would use

  --json         print JSON
  --no-python    leave out Python and the frameworks, which take seconds to import
  --mpi-library  print only the MPI library that a rank started like this process would use, as JSON

What it looks at is said on standard error meanwhile.
Exit status 0, or 1 when something will not work. Advice does not change it.
)";

// Rewrites one line of a terminal; "" takes it away. Elsewhere a line of its own for each: whoever reads the
// page through a pipe waits as long.
void show_progress(std::string_view what) {
  const bool is_terminal = isatty(STDERR_FILENO) != 0;
  if (what.empty() && !is_terminal) return;
  const std::string text = what.empty() ? std::string() : fmt::format("rueda doctor: {} …", what);
  fmt::print(stderr, "{}{}{}", is_terminal ? "\r\x1b[K" : "", text, is_terminal ? "" : "\n");
  std::fflush(stderr);
}

}  // namespace

int doctor_command(const Arguments& arguments) {
  bool is_json = false, looks_at_python = true;
  for (const std::string& argument : arguments) {
    if (argument == "--json") {
      is_json = true;
    } else if (argument == "--no-python") {
      looks_at_python = false;
    } else if (argument == "--mpi-library") {
      fmt::print("{}\n", doctor::ask_mpi(own_path()));
      return 0;
    } else if (argument == "--help" || argument == "-h") {
      fmt::print("{}", kDoctorHelp);
      return 0;
    } else {
      fmt::print(stderr, "rueda doctor: {}\n",
                 unknown_word(argument, "option", "rueda doctor",
                              std::vector<std::string>{"--json", "--no-python", "--mpi-library", "--help"}));
      return kUsageError;
    }
  }
  const doctor::Report report = doctor::examine(own_path(), looks_at_python, show_progress);
  show_progress("");
  fmt::print("{}", is_json ? doctor::json(report) : doctor::page(report));
  return doctor::is_broken(report) ? 1 : 0;
}

}  // namespace rueda::cli
