// The table that people read.
#include <fmt/format.h>

#include <algorithm>

#include "bench/report.h"
#include "doctor/report.h"
#include "preflight/outcome.h"

namespace rueda::preflight {
namespace {

constexpr size_t kMatrixHosts = 12;  // more do not fit on a terminal; the picture and the JSON have all

using Line = std::vector<std::string>;

// Columns as wide as their longest cell; the first one is aligned left.
std::string table(const std::vector<Line>& lines) {
  std::vector<size_t> widths(lines.empty() ? 0 : lines[0].size());
  for (const Line& line : lines)
    for (size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  std::string text;
  for (const Line& line : lines) {
    for (size_t i = 0; i < line.size(); ++i)
      text +=
          i == 0 ? fmt::format("  {:<{}}", line[i], widths[i]) : fmt::format("  {:>{}}", line[i], widths[i]);
    text += "\n";
  }
  return text;
}

std::string clock_text(const ClockOffset& clock) {
  return fmt::format("{}{}", clock.us < 0 ? "-" : "+", bench::us_text(std::abs(clock.us)));
}

std::string hosts_table(const Outcome& outcome) {
  const Measured& measured = outcome.measured;
  double most = 0, most_within = 0;
  for (const HostRates& rates : outcome.verdict.hosts) most = std::max(most, rates.gbit_per_s);
  for (const double rate : measured.within_gbit_per_s) most_within = std::max(most_within, rate);
  const RateUnit unit = rate_unit(most), unit_within = rate_unit(most_within);
  std::vector<Line> lines = {{"host", "cores", "memory", "library", fmt::format("rate in {}", unit.name),
                              "slowest", "with", "round trip", "clock",
                              fmt::format("within in {}", unit_within.name)}};
  for (size_t i = 0; i < measured.hosts.size(); ++i) {
    const HostFacts& facts = measured.hosts[i];
    const HostRates rates = outcome.verdict.hosts[i];
    const bool is_paired = rates.slowest_with >= 0;
    const double within = i < measured.within_gbit_per_s.size() ? measured.within_gbit_per_s[i] : 0;
    lines.push_back({facts.host, std::to_string(facts.cores),
                     doctor::bytes_text(static_cast<unsigned long long>(facts.memory_bytes)),
                     facts.library_id.empty() ? "none" : facts.library_id.substr(0, 8),
                     is_paired ? unit.text(rates.gbit_per_s) : "-",
                     is_paired ? unit.text(rates.least_gbit_per_s) : "-",
                     is_paired ? measured.hosts[static_cast<size_t>(rates.slowest_with)].host : "-",
                     rates.round_trip_us > 0 ? bench::us_text(rates.round_trip_us) : "-",
                     i < measured.clocks.size() ? clock_text(measured.clocks[i]) : "-",
                     within > 0 ? unit_within.text(within) : "-"});
  }
  return table(lines);
}

std::string matrix(const Outcome& outcome) {
  const Measured& measured = outcome.measured;
  const size_t count = measured.hosts.size();
  std::vector<Line> lines(count + 1, Line(count + 1, "-"));
  double most = 0;
  for (const PairMeasurement& pair : measured.pairs)
    most = std::max({most, one_way(pair, pair.a), one_way(pair, pair.b)});
  const RateUnit unit = rate_unit(most);
  lines[0][0] = fmt::format("{} to", unit.name);
  for (size_t i = 0; i < count; ++i) lines[0][i + 1] = lines[i + 1][0] = measured.hosts[i].host;
  for (const PairMeasurement& pair : measured.pairs) {
    const auto a = static_cast<size_t>(pair.a) + 1, b = static_cast<size_t>(pair.b) + 1;
    lines[a][b] = unit.text(one_way(pair, pair.a));
    lines[b][a] = unit.text(one_way(pair, pair.b));
  }
  return table(lines);
}

std::string counted(size_t count, const char* one) {
  return fmt::format("{} {}{}", count, one, count == 1 ? "" : "s");
}

std::string rounds_text(const Measured& measured) {
  if (measured.hosts.size() == 1) return "one host, so no pair of hosts was measured";
  if (measured.rounds == 0) return "no pair of hosts was measured";
  const std::string pairs = fmt::format("{} in {}", counted(measured.pairs.size(), "pair"),
                                        counted(static_cast<size_t>(measured.rounds), "round"));
  if (measured.rounds >= measured.rounds_for_all)
    return pairs + (measured.pairs.size() == 1 ? ", which is all" : ", which are all");
  return fmt::format("{} of the {} that all pairs need; the other links were not tested (--rounds)", pairs,
                     measured.rounds_for_all);
}

}  // namespace

std::string page(const Outcome& outcome) {
  const Measured& measured = outcome.measured;
  std::string text =
      fmt::format("{}, {} answered, {}; {}\n\n", counted(outcome.asked.size(), "host"), measured.hosts.size(),
                  counted(static_cast<size_t>(outcome.ranks), "rank"), rounds_text(measured));
  if (!measured.hosts.empty()) text += hosts_table(outcome) + "\n";
  if (!measured.pairs.empty() && measured.hosts.size() <= kMatrixHosts) text += matrix(outcome) + "\n";
  size_t broken = 0;
  for (const Finding& finding : outcome.findings) {
    text += fmt::format("{} {}\n", finding.is_broken ? "PROBLEM:" : "advice: ", finding.sentence);
    broken += finding.is_broken ? 1 : 0;
  }
  const size_t advice = outcome.findings.size() - broken;
  if (!outcome.findings.empty()) text += "\n";
  if (broken == 0 && advice == 0) return text + "No problem found.\n";
  return text + fmt::format("{}, {} advice.\n", counted(broken, "problem"), advice);
}

}  // namespace rueda::preflight
