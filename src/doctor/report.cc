#include "doctor/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

namespace rueda::doctor {

bool is_broken(const Report& report) {
  return std::ranges::any_of(report, [](const Section& section) {
    return std::ranges::any_of(section.problems, &Problem::is_broken);
  });
}

std::string page(const Report& report) {
  std::string text;
  size_t broken = 0, advice = 0;
  for (const Section& section : report) {
    text += section.title + "\n";
    for (const Fact& fact : section.facts) text += fmt::format("  {:<22} {}\n", fact.name, fact.value);
    for (const Problem& problem : section.problems) {
      text += fmt::format("  {} {}\n", problem.is_broken ? "BROKEN:" : "advice:", problem.sentence);
      ++(problem.is_broken ? broken : advice);
    }
    text += "\n";
  }
  if (broken == 0 && advice == 0) return text + "No problem found.\n";
  return text + fmt::format("{} broken, {} advice.\n", broken, advice);
}

std::string json(const Report& report) {
  nlohmann::ordered_json out;
  nlohmann::ordered_json problems = nlohmann::ordered_json::array();
  for (const Section& section : report) {
    nlohmann::ordered_json& facts = out["facts"][section.title];
    facts = nlohmann::ordered_json::object();
    for (const Fact& fact : section.facts) facts[fact.name] = fact.value;
    for (const Problem& problem : section.problems)
      problems.push_back(
          {{"section", section.title}, {"sentence", problem.sentence}, {"is_broken", problem.is_broken}});
  }
  out["problems"] = std::move(problems);
  out["is_broken"] = is_broken(report);
  // Names and values come from the machine, so they may contain anything.
  return out.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string bytes_text(unsigned long long bytes) {
  constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  auto value = static_cast<double>(bytes);
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

}  // namespace rueda::doctor
