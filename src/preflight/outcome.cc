#include "preflight/outcome.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "rueda/base/release.h"

namespace rueda::preflight {
namespace {

using nlohmann::ordered_json;

constexpr int kFormat = 1;  // of the JSON; it changes when a key changes its meaning or goes

std::string dump(const ordered_json& value, int indent) {
  // Names come from the machines, so they may contain any bytes.
  return value.dump(indent, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

ordered_json json_of(const HostFacts& facts) { return ordered_json::parse(encode(facts), nullptr, false); }

ordered_json json_of(const PairMeasurement& pair, const std::vector<HostFacts>& hosts) {
  return {{"hosts", {hosts[static_cast<size_t>(pair.a)].host, hosts[static_cast<size_t>(pair.b)].host}},
          {"gbit_per_s", pair.gbit_per_s},
          {"one_way_gbit_per_s", {pair.forth_gbit_per_s, pair.back_gbit_per_s}},
          {"round_trip_us", pair.round_trip_us > 0 ? ordered_json(pair.round_trip_us) : ordered_json()},
          {"round_trip_from", pair.is_counted ? "kernel" : "calls"},
          {"bytes", pair.bytes},
          {"is_right", pair.is_right},
          {"attempts", pair.attempts}};
}

ordered_json hosts_json(const Outcome& outcome) {
  const Measured& measured = outcome.measured;
  ordered_json hosts = ordered_json::array();
  for (size_t i = 0; i < measured.hosts.size(); ++i) {
    ordered_json host = json_of(measured.hosts[i]);
    const auto optional = [](bool is_known, double value) {
      return is_known ? ordered_json(value) : ordered_json();
    };
    const HostRates rates = i < outcome.verdict.hosts.size() ? outcome.verdict.hosts[i] : HostRates{};
    const bool is_paired = rates.slowest_with >= 0;
    host["gbit_per_s"] = optional(is_paired, rates.gbit_per_s);
    host["round_trip_us"] = optional(is_paired && rates.round_trip_us > 0, rates.round_trip_us);
    const double within = i < measured.within_gbit_per_s.size() ? measured.within_gbit_per_s[i] : 0;
    host["within_gbit_per_s"] = optional(within > 0, within);
    const bool has_clock = i < measured.clocks.size();
    host["clock_offset_us"] = optional(has_clock, has_clock ? measured.clocks[i].us : 0);
    host["clock_error_us"] = optional(has_clock, has_clock ? measured.clocks[i].error_us : 0);
    hosts.push_back(std::move(host));
  }
  return hosts;
}

ordered_json ring_json(const Outcome& outcome) {
  if (!outcome.ring) return {};
  const RingOrder& ring = *outcome.ring;
  std::vector<std::string> names, ordered;
  for (const HostFacts& facts : outcome.measured.hosts) names.push_back(facts.host);
  for (const int host : ring.order) ordered.push_back(names[static_cast<size_t>(host)]);
  return {{"hosts", ordered},
          {"option", host_list(names, outcome.slots, ring.order)},
          {"gbit_per_s", ring.gbit_per_s},
          {"given_gbit_per_s", ring.given_gbit_per_s},
          {"latency_us", ring.latency_us},
          {"given_latency_us", ring.given_latency_us},
          {"pays", ring.pays()}};
}

// Reads one array of numbers; false if it is something else.
bool take(const nlohmann::json& from, size_t count, std::vector<double>& numbers) {
  if (!from.is_array() || from.size() != count) return false;
  numbers.clear();
  for (const nlohmann::json& one : from) {
    if (!one.is_number()) return false;
    numbers.push_back(one.get<double>());
  }
  return true;
}

// Whether a number of JSON has a value of this type.
template <class T>
bool is_whole(double number) {
  constexpr double kLimit = sizeof(T) == 4 ? 0x1p31 : 0x1p53;
  return number > -kLimit && number < kLimit && std::trunc(number) == number;
}

bool decode_pairs(const nlohmann::json& from, Measured& measured) {
  if (!from.is_array()) return false;
  const auto hosts = static_cast<double>(measured.hosts.size());
  std::vector<double> numbers;
  for (const nlohmann::json& row : from) {
    if (!take(row, 10, numbers)) return false;
    if (!(numbers[0] >= 0 && numbers[0] < numbers[1] && numbers[1] < hosts)) return false;
    if (!is_whole<int64_t>(numbers[5]) || !is_whole<int>(numbers[7])) return false;
    measured.pairs.push_back({.a = static_cast<int>(numbers[0]),
                              .b = static_cast<int>(numbers[1]),
                              .gbit_per_s = numbers[2],
                              .forth_gbit_per_s = numbers[8],
                              .back_gbit_per_s = numbers[9],
                              .round_trip_us = numbers[3],
                              .is_counted = numbers[4] != 0,
                              .bytes = static_cast<int64_t>(numbers[5]),
                              .is_right = numbers[6] != 0,
                              .attempts = static_cast<int>(numbers[7])});
  }
  return true;
}

bool decode_into(const nlohmann::json& read, Measured& measured) {
  if (!read.is_object() || !read.contains("hosts") || !read["hosts"].is_array()) return false;
  for (const nlohmann::json& host : read["hosts"]) {
    Result<HostFacts> facts = decode_facts(host.dump());
    if (!facts.is_ok()) return false;
    measured.hosts.push_back(std::move(facts).value());
  }
  std::vector<double> numbers;
  const auto part = [&](const char* key) { return read.value(key, nlohmann::json()); };
  if (!decode_pairs(part("pairs"), measured)) return false;
  if (!take(part("within"), measured.hosts.size(), measured.within_gbit_per_s)) return false;
  const nlohmann::json clocks = part("clocks");
  if (!clocks.is_array() || (!clocks.empty() && clocks.size() != measured.hosts.size())) return false;
  for (const nlohmann::json& clock : clocks) {
    if (!take(clock, 2, numbers)) return false;
    measured.clocks.push_back({.us = numbers[0], .error_us = numbers[1]});
  }
  if (!take(part("rounds"), 2, numbers) || !is_whole<int>(numbers[0]) || !is_whole<int>(numbers[1]))
    return false;
  measured.rounds = static_cast<int>(numbers[0]);
  measured.rounds_for_all = static_cast<int>(numbers[1]);
  return true;
}

}  // namespace

Outcome judge(Measured measured, int ranks, double least_gbit_per_s, Findings started_with,
              std::vector<launch::HostSlots> slots) {
  Outcome outcome{.asked = {},
                  .ranks = ranks,
                  .least_gbit_per_s = least_gbit_per_s,
                  .measured = std::move(measured),
                  .slots = std::move(slots),
                  .verdict = {},
                  .ring = {},
                  .findings = {}};
  outcome.findings = std::move(started_with);
  std::vector<std::string> names;
  for (const HostFacts& facts : outcome.measured.hosts) names.push_back(facts.host);
  outcome.asked = names;
  const auto add = [&](Findings more) {
    outcome.findings.insert(outcome.findings.end(), more.begin(), more.end());
  };
  outcome.verdict = judge_links(static_cast<int>(names.size()), outcome.measured.pairs);
  outcome.ring = find_ring_order(static_cast<int>(names.size()), outcome.measured.pairs);
  add(compare_hosts(outcome.measured.hosts));
  add(check_hosts(outcome.measured.hosts, ranks));
  add(check_clocks(names, outcome.measured.clocks));
  add(check_links(names, outcome.measured.pairs, outcome.verdict, least_gbit_per_s));
  add(check_cards(outcome.measured.hosts, outcome.verdict));
  add(check_ring_order(names, outcome.slots, outcome.ring));
  std::ranges::stable_sort(outcome.findings, std::ranges::greater{}, &Finding::is_broken);
  return outcome;
}

std::string json(const Outcome& outcome) {
  const Measured& measured = outcome.measured;
  ordered_json links = ordered_json::array();
  for (const PairMeasurement& pair : measured.pairs) links.push_back(json_of(pair, measured.hosts));
  ordered_json findings = ordered_json::array();
  for (const Finding& finding : outcome.findings)
    findings.push_back({{"kind", finding.kind},
                        {"hosts", finding.hosts},
                        {"sentence", finding.sentence},
                        {"is_broken", finding.is_broken}});
  return dump({{"format", kFormat},
               {"release", kRelease},
               {"asked", outcome.asked},
               {"ranks", outcome.ranks},
               {"rounds", measured.rounds},
               {"rounds_for_all_pairs", measured.rounds_for_all},
               {"usual_gbit_per_s", outcome.verdict.usual_gbit_per_s},
               {"usual_round_trip_us", outcome.verdict.usual_us},
               {"hosts", hosts_json(outcome)},
               {"links", std::move(links)},
               {"host_order", ring_json(outcome)},
               {"findings", std::move(findings)},
               {"is_broken", is_broken(outcome.findings)}},
              1);
}

std::string encode(const Measured& measured) {
  ordered_json out;
  out["hosts"] = ordered_json::array();
  out["pairs"] = ordered_json::array();
  out["clocks"] = ordered_json::array();
  for (const HostFacts& facts : measured.hosts) out["hosts"].push_back(json_of(facts));
  for (const PairMeasurement& pair : measured.pairs)
    out["pairs"].push_back({pair.a, pair.b, pair.gbit_per_s, pair.round_trip_us, pair.is_counted ? 1 : 0,
                            pair.bytes, pair.is_right ? 1 : 0, pair.attempts, pair.forth_gbit_per_s,
                            pair.back_gbit_per_s});
  for (const ClockOffset& clock : measured.clocks) out["clocks"].push_back({clock.us, clock.error_us});
  out["within"] = measured.within_gbit_per_s;
  out["rounds"] = {measured.rounds, measured.rounds_for_all};
  return out.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

Result<Measured> decode_measured(std::string_view text) {
  Measured measured;
  if (!decode_into(nlohmann::json::parse(text, nullptr, false), measured))
    return Status(Code::kInvalidArgument,
                  "the first rank's answer cannot be read; install the same release on all hosts");
  return measured;
}

}  // namespace rueda::preflight
