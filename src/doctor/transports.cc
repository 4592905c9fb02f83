#include "doctor/transports.h"

#include <fmt/format.h>
#include <stdlib.h>  // mkdtemp

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "bench/report.h"
#include "doctor/python.h"
#include "rueda/base/transport_names.h"
#include "rueda/store/world.h"

namespace rueda::doctor {
namespace {

namespace fs = std::filesystem;

constexpr int kTrialSeconds = 30;

// The last line that is not empty.
std::string closing_line(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  const size_t begin = text.rfind('\n');
  return begin == std::string::npos ? text : text.substr(begin + 1);
}

struct Folder {  // the destructor removes it with its contents
  std::string path;
  Folder() : path((fs::temp_directory_path(ignored) / "rueda-doctor-XXXXXX").string()) {
    if (mkdtemp(path.data()) == nullptr) path.clear();
  }
  Folder(const Folder&) = delete;
  ~Folder() {
    if (!path.empty()) fs::remove_all(path, ignored);
  }
  std::error_code ignored;
};

std::string contents_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

void add_trial(Section& section, const Trial& trial) {
  const auto read = nlohmann::json::parse(trial.json, nullptr, false);
  const auto rows =
      read.is_object() ? read.value("results", nlohmann::json::array()) : nlohmann::json::array();
  const auto fail = [&](const std::string& why) {
    section.add(trial.transport, "does not work");
    section.fail(
        fmt::format("two ranks of this host cannot exchange bytes over {}: {}; rueda bench alltoall "
                    "--transport {} shows it again",
                    trial.transport, why, trial.transport));
  };
  if (!trial.is_in_time) return fail(fmt::format("they did not end within {} s", kTrialSeconds));
  if (rows.size() != 2 || !rows[0].is_object() || !rows[1].is_object())
    return fail(trial.output.empty() ? "they said nothing" : closing_line(trial.output));
  if (!rows[0].value("correct", false) || !rows[1].value("correct", false))
    return fail("other bytes arrived than were sent");
  section.add(trial.transport,
              fmt::format("works; small exchange {}, 4 MiB at {:.1f} GB/s",
                          bench::us_text(rows[0].value("median_us", 0.0)), rows[1].value("busbw_gbps", 0.0)));
}

Section examine_transports(const std::string& own_path, std::string_view transports) {
  Section section{.title = "transports", .facts = {}, .problems = {}};
  const Result<store::World> world = store::detect_own_world();
  if (!world.is_ok() || world.value().launcher != "single") {
    section.add("not tried", "inside a job, whose ranks the trials would become; run rueda doctor alone");
    return section;
  }
  const Folder folder;
  if (folder.path.empty()) {
    section.advise("no temporary folder can be made, so the transports were not tried; set TMPDIR");
    return section;
  }
  const std::string named = fmt::format(",{},", transports);
  for (const std::string_view transport : kTransportNames) {
    const std::string name(transport), json = folder.path + "/" + name;
    if (named.find("," + name + ",") == std::string::npos) continue;
    Trial trial{.transport = name, .output = {}, .json = {}};
    PythonProgram program(own_path,
                          {"bench", "alltoall", "-np", "2", "--transport", name, "--sizes", "8B,4MiB",
                           "--memory", "private", "--iterations", "20", "--json", json},
                          {}, true);
    trial.is_in_time = program.read_all(Deadline::after(kTrialSeconds * kSecond), trial.output);
    trial.json = contents_of(json);
    add_trial(section, trial);
  }
  return section;
}

}  // namespace rueda::doctor
