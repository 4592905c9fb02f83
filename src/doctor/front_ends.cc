#include "doctor/front_ends.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "doctor/python.h"

namespace rueda::doctor {
namespace {

constexpr int kLimitSeconds = 60, kLeastSeconds = 5;
// Makes the child a single-process job, whichever launcher started this process.
const std::vector<std::string> kAlone = {"RUEDA_RANK=0", "RUEDA_SIZE=1", "RUEDA_LOCAL_RANK=0",
                                         "RUEDA_LOCAL_SIZE=1", "RUEDA_STORE="};

std::string last_line(const std::string& text) {
  const size_t end = text.find_last_not_of(" \n");
  if (end == std::string::npos) return "no output";
  const size_t begin = text.rfind('\n', end);
  return text.substr(begin == std::string::npos ? 0 : begin + 1,
                     end - (begin == std::string::npos ? -1 : static_cast<long>(begin)));
}

// The answer is the last line. Frameworks may print anything before it.
nlohmann::ordered_json read_answer(const std::string& text) {
  return nlohmann::ordered_json::parse(last_line(text), nullptr, false);
}

void add_facts(Section& section, const nlohmann::ordered_json& facts) {
  for (const auto& [name, value] : facts.items())
    section.add(name, value.is_string() ? value.get<std::string>() : value.dump());
}

}  // namespace

void add_answer(Section& section, const Answer& answer) {
  const auto said = read_answer(answer.text);
  if (!answer.is_in_time) {
    section.fail(
        fmt::format("the front end for {} did not answer within {} s; run `python -m rueda.doctor {}`",
                    answer.framework, kLimitSeconds, answer.framework));
  } else if (answer.exit_status != 0 || !said.is_object() || !said.contains("facts")) {
    const std::string how = answer.exit_status < 0 ? fmt::format("signal {}", -answer.exit_status)
                                                   : fmt::format("exit status {}", answer.exit_status);
    section.fail(fmt::format("the front end for {} ended with {} ({}); run `python -m rueda.doctor {}`",
                             answer.framework, how, last_line(answer.text), answer.framework));
  } else {
    add_facts(section, said["facts"]);
    for (const auto& sentence : said.value("broken", nlohmann::ordered_json::array()))
      section.fail(sentence.get<std::string>());
    for (const auto& sentence : said.value("advice", nlohmann::ordered_json::array()))
      section.advise(sentence.get<std::string>());
  }
}

FrontEnds::FrontEnds(const std::string& own_path) : deadline_(Deadline::after(kLimitSeconds * kSecond)) {
  const Result<std::string> python = find_python(own_path);
  if (!python.is_ok()) {
    section_.advise(python.status().why + ", so the front ends were not checked");
    return;
  }
  Answer about{.framework = "Python", .text = {}, .is_in_time = false, .exit_status = 0};
  PythonProgram asked(python.value(), {"-m", "rueda.doctor"}, kAlone, true);
  about.is_in_time = asked.read_all(deadline_, about.text);
  about.exit_status = asked.exit_status();
  const auto said = read_answer(about.text);
  if (about.is_in_time && about.exit_status != 0 && about.text.find("No module named") != std::string::npos) {
    // Python says this name without quotes if there is a package rueda that has no such module.
    const bool is_foreign = about.text.find("No module named rueda.doctor") != std::string::npos;
    section_.advise(fmt::format(
        "{} has {} ({}); {}install the wheel there, or set RUEDA_PYTHON to the Python that has it",
        python.value(), is_foreign ? "a package rueda that is another project's" : "no package rueda",
        last_line(about.text), is_foreign ? "run `pip uninstall rueda`, then " : ""));
    return;
  }
  add_answer(section_, about);
  if (!said.is_object() || !said.contains("frameworks")) return;
  for (const auto& name : said["frameworks"]) {
    const auto framework = name.get<std::string>();
    running_.emplace_back(framework,
                          PythonProgram(python.value(), {"-m", "rueda.doctor", framework}, kAlone, true));
  }
}

Section FrontEnds::finish(const Progress& tell) {
  // What was looked at meanwhile may have taken the minute.
  const Deadline deadline =
      Deadline::at(std::max(deadline_.when(), monotonic_now() + kLeastSeconds * kSecond));
  for (size_t i = 0; i < running_.size(); ++i) {
    std::string names;
    for (size_t j = i; j < running_.size(); ++j) names += (j == i ? "" : ", ") + running_[j].first;
    tell("Python imports and tries " + names);
    auto& [framework, program] = running_[i];
    Answer answer{.framework = framework, .text = {}, .is_in_time = false, .exit_status = 0};
    answer.is_in_time = program.read_all(deadline, answer.text);
    answer.exit_status = program.exit_status();
    add_answer(section_, answer);
  }
  running_.clear();
  return std::move(section_);
}

}  // namespace rueda::doctor
