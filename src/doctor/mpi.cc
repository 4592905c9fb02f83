#include "doctor/mpi.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "bench/library.h"
#include "doctor/python.h"
#include "launch/processes.h"
#include "rueda/store/world.h"

namespace rueda::doctor {
namespace {

using Json = nlohmann::json;

constexpr int kStartSeconds = 20;  // an mpirun takes one or two

std::string text_of(const Json& answer, const char* key) {
  return answer.is_object() ? answer.value(key, "") : "";
}

bool operations_are_mpi() {
  const char* const operations = getenv("RUEDA_CPU_OPERATIONS");
  return operations != nullptr && std::string_view(operations) == "mpi";
}

// The output has what mpirun says as well.
Json answer_in(const std::string& output) {
  for (size_t begin = 0; begin < output.size();) {
    const size_t end = std::min(output.find('\n', begin), output.size());
    Json answer = Json::parse(output.substr(begin, end - begin), nullptr, false);
    if (answer.is_object()) return answer;
    begin = end + 1;
  }
  return {};
}

std::string first_line_of(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \n");
  return begin == std::string::npos ? std::string() : text.substr(begin, text.find('\n', begin) - begin);
}

void add_run(Section& section, const std::string& here, const MpiOfRun& run) {
  const Json answer = answer_in(run.output);
  const std::string library = text_of(answer, "library");
  if (library.empty()) {
    std::string why = fmt::format("it did not end within {} s", kStartSeconds);
    if (run.is_in_time) why = answer.is_object() ? text_of(answer, "problem") : first_line_of(run.output);
    section.add("rueda run --mpi", fmt::format("{} starts no rank that has an MPI library", run.mpirun));
    return section.advise(fmt::format("rueda run --mpi cannot use {}: {}; without --mpi rueda needs no MPI",
                                      run.mpirun, why.empty() ? "it said nothing" : why));
  }
  section.add("rueda run --mpi",
              fmt::format("{}, {} (started by {})", library, text_of(answer, "file"), run.mpirun));
  if (!here.empty() && library != here)
    section.advise(
        fmt::format("rueda run --mpi uses {}, because {} belongs to it, but a process that no mpirun "
                    "has started finds {}; name an mpirun with --mpirun if you mean the latter",
                    library, run.mpirun, here));
}

std::optional<MpiOfRun> try_run(const std::string& own_path) {
  const Result<store::World> world = store::detect_own_world();
  if (!world.is_ok() || world.value().launcher != "single") return std::nullopt;  // it would become a rank
  const char* const path = getenv("PATH");
  const Result<std::string> mpirun = launch::find_program("mpirun", path != nullptr ? path : "", "");
  if (!mpirun.is_ok()) return std::nullopt;
  MpiOfRun run{.mpirun = mpirun.value()};
  PythonProgram program(own_path, {"run", "--mpi", "-np", "1", own_path, "doctor", "--mpi-library"}, {},
                        true);
  run.is_in_time = program.read_all(Deadline::after(kStartSeconds * kSecond), run.output);
  return run;
}

}  // namespace

void add_mpi(Section& section, const MpiAnswer& here, bool is_wanted, const std::optional<MpiOfRun>& run) {
  const Json answer = Json::parse(here, nullptr, false);
  const std::string library = text_of(answer, "library"), problem = text_of(answer, "problem");
  if (!problem.empty()) {
    section.add("MPI library", "none found");
    if (is_wanted) section.fail(problem);
  } else if (!library.empty()) {
    section.add("MPI library", fmt::format("{}, {} ({})", library, text_of(answer, "file"),
                                           is_wanted ? "RUEDA_CPU_OPERATIONS=mpi uses it"
                                                     : "used only with RUEDA_CPU_OPERATIONS=mpi"));
  }
  if (run) add_run(section, library, *run);
}

MpiAnswer ask_mpi(const std::string& own_path) {
  const Result<bench::Library> library = bench::open_library(own_path);
  if (!library.is_ok()) return Json{{"problem", library.status().why}}.dump();
  const char* const before = getenv("RUEDA_CPU_OPERATIONS");
  const std::string operations = before != nullptr ? before : "";
  setenv("RUEDA_CPU_OPERATIONS", "mpi", 1);
  const Json about = Json::parse(library.value().describe(), nullptr, false);
  if (before != nullptr)
    setenv("RUEDA_CPU_OPERATIONS", operations.c_str(), 1);
  else
    unsetenv("RUEDA_CPU_OPERATIONS");
  return about.is_object() && about.contains("mpi") ? about["mpi"].dump() : std::string();
}

void examine_mpi(Section& section, const std::string& own_path) {
  add_mpi(section, ask_mpi(own_path), operations_are_mpi(), try_run(own_path));
}

}  // namespace rueda::doctor
