#include "doctor/transports.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "bench/report.h"
#include "doctor/python.h"
#include "rueda/base/transport_names.h"
#include "rueda/store/world.h"

namespace rueda::doctor {
namespace {

constexpr int kTrialSeconds = 30;

// What a rank said of its failure, else the last line that is not empty.
std::string reason_in(std::string text) {
  constexpr std::string_view kMark = "rueda bench: ";
  while (text.ends_with('\n')) text.pop_back();
  const size_t said = ("\n" + text).find(fmt::format("\n{}", kMark));
  const size_t last = text.rfind('\n');
  const size_t begin = said != std::string::npos   ? said + kMark.size()
                       : last == std::string::npos ? 0
                                                   : last + 1;
  std::string reason = text.substr(begin, text.find('\n', begin) - begin);
  if (reason.ends_with('.')) reason.pop_back();  // more of the sentence follows
  return reason;
}

// Two ranks of `rueda run`, whose first one writes its results to its output: a limit of files does not stop
// it.
std::vector<std::string> trial_command(const std::string& own_path, const std::string& transport) {
  return {"run",     "-np",          "2",           "-H",      "localhost:2", "--no-prefix", own_path,
          "bench",   "alltoall",     "--transport", transport, "--sizes",     "8B,4MiB",     "--memory",
          "private", "--iterations", "20",          "--json",  "/dev/stdout"};
}

}  // namespace

bool names(std::string_view transports, std::string_view transport) {
  return fmt::format(",{},", transports).find(fmt::format(",{},", transport)) != std::string::npos;
}

Trial trial_of(std::string transport, const std::string& text, bool is_in_time) {
  Trial trial{.transport = std::move(transport), .output = text, .json = {}, .is_in_time = is_in_time};
  const size_t begin = text.rfind("\n{\n"), end = text.rfind("\n}\n");
  if (begin == std::string::npos || end == std::string::npos || end < begin) return trial;
  trial.json = text.substr(begin + 1, end + 1 - begin);
  trial.output = text.substr(0, begin + 1) + text.substr(end + 3);
  return trial;
}

std::string usable_transports(std::string_view transports, const std::string& memory_fault) {
  std::string others;
  for (const std::string_view other : kTransportNames)
    if (other != "shm" && names(transports, other))
      others += fmt::format("{}{}", others.empty() ? "" : ",", other);
  return memory_fault.empty() || others.empty() ? std::string(transports) : others;
}

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
    return fail(trial.output.empty() ? "they said nothing" : reason_in(trial.output));
  if (!rows[0].value("correct", false) || !rows[1].value("correct", false))
    return fail("other bytes arrived than were sent");
  section.add(trial.transport,
              fmt::format("works; small exchange {}, 4 MiB at {:.1f} GB/s",
                          bench::us_text(rows[0].value("median_us", 0.0)), rows[1].value("busbw_gbps", 0.0)));
}

Section examine_transports(const std::string& own_path, std::string_view transports,
                           const std::string& memory_fault) {
  Section section{.title = "transports", .facts = {}, .problems = {}};
  const Result<store::World> world = store::detect_own_world();
  if (!world.is_ok() || world.value().launcher != "single") {
    section.add("not tried", "inside a job, whose ranks the trials would become; run rueda doctor alone");
    return section;
  }
  const std::string usable = usable_transports(transports, memory_fault);
  if (names(transports, "shm") && !names(usable, "shm"))
    section.add("shm", fmt::format("not available (see memory); jobs use {} inside this host", usable));
  for (const std::string_view transport : kTransportNames) {
    if (!names(usable, transport)) continue;
    if (transport == "shm" && !memory_fault.empty()) {
      section.add("shm", "does not work");
      section.fail(
          "RUEDA_TRANSPORTS=shm allows nothing but shared memory, which is not available here (see memory); "
          "allow "
          "tcp with RUEDA_TRANSPORTS=shm,tcp");
      continue;
    }
    const std::string name(transport);
    PythonProgram program(own_path, trial_command(own_path, name), {}, true);
    std::string text;
    const bool is_in_time = program.read_all(Deadline::after(kTrialSeconds * kSecond), text);
    add_trial(section, trial_of(name, text, is_in_time));
  }
  return section;
}

}  // namespace rueda::doctor
