#include "observe/view.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

namespace rueda::observe {
namespace {

using nlohmann::json;

constexpr double kSureAfter_s = 0.5;

int64_t integer(const json& from, const char* key, int64_t otherwise = 0) {
  const auto found = from.find(key);
  return found != from.end() && found->is_number_integer() ? found->get<int64_t>() : otherwise;
}
std::optional<double> real(const json& from, const char* key) {
  const auto found = from.find(key);
  if (found == from.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}
std::string text(const json& from, const char* key) {
  const auto found = from.find(key);
  return found != from.end() && found->is_string() ? found->get<std::string>() : std::string();
}
json object(const json& from, const char* key) {
  const auto found = from.find(key);
  return found != from.end() && found->is_object() ? *found : json::object();
}

InFlight parse_in_flight(const json& from) {
  InFlight one;
  one.name = text(from, "name");
  one.what = text(from, "what");
  one.process_set = static_cast<int>(integer(from, "process_set"));
  one.age_s = real(from, "age_s").value_or(0);
  if (const auto members = from.find("members"); members != from.end() && members->is_array())
    for (const json& member : *members)
      if (member.is_number_integer()) one.members.push_back(member.get<Rank>());
  return one;
}

const InFlight* find(const Process& process, const InFlight& wanted) {
  for (const InFlight& one : process.in_flight)
    if (one.name == wanted.name && one.process_set == wanted.process_set) return &one;
  return nullptr;
}

std::vector<std::pair<std::string, std::vector<Rank>>> parse_elsewhere(const json& from) {
  std::vector<std::pair<std::string, std::vector<Rank>>> hosts;
  const auto list = from.find("elsewhere");
  if (list == from.end() || !list->is_array()) return hosts;
  for (const json& one : *list) {
    if (!one.is_object()) continue;
    std::vector<Rank>& ranks = hosts.emplace_back(text(one, "host"), std::vector<Rank>()).second;
    if (const auto found = one.find("ranks"); found != one.end() && found->is_array())
      for (const json& rank : *found)
        if (rank.is_number_integer()) ranks.push_back(rank.get<Rank>());
  }
  return hosts;
}

std::vector<Rank> ranks_in(const json& from, const char* key) {
  std::vector<Rank> ranks;
  if (const auto found = from.find(key); found != from.end() && found->is_array())
    for (const json& rank : *found)
      if (rank.is_number_integer()) ranks.push_back(rank.get<Rank>());
  return ranks;
}

void parse_starting(const json& from, Process& process) {
  const json starting = object(from, "starting");
  if (starting.empty()) return;
  process.starting = {.for_s = real(starting, "for_s").value_or(0), .missing = ranks_in(starting, "missing")};
}

std::vector<Straggler> parse_stragglers(const json& from) {
  std::vector<Straggler> stragglers;
  const auto list = from.find("stragglers");
  if (list == from.end() || !list->is_array()) return stragglers;
  for (const json& one : *list)
    if (one.is_object() && integer(one, "rank", -1) >= 0)
      stragglers.push_back({.rank = static_cast<Rank>(integer(one, "rank")),
                            .host = text(one, "host"),
                            .share = real(one, "share").value_or(0),
                            .window_s = real(one, "window_s").value_or(0)});
  return stragglers;
}

bool has_joined(const Process& process) {
  return std::ranges::any_of(process.in_flight, [](const InFlight& one) { return one.what == "join"; });
}

}  // namespace

Result<Process> parse_process(const std::string& from) {
  json answer = json::parse(from, nullptr, false);
  if (!answer.is_object() || !answer.contains("pid"))
    return Status(Code::kInvalidArgument, "a process answered with something else than its status.");
  Process process;
  process.pid = process.own_pid = static_cast<int>(integer(answer, "pid"));
  process.job = text(answer, "job");
  process.rank = static_cast<Rank>(integer(answer, "rank", -1));
  process.size = static_cast<Rank>(integer(answer, "size"));
  process.view = integer(answer, "view");
  process.process = text(answer, "process");
  process.host = text(answer, "host");
  process.failure = text(answer, "failure");
  process.resident_bytes = integer(answer, "resident_bytes");
  process.link_bytes_per_s = integer(answer, "link_bytes_per_s");
  const json steps = object(answer, "steps"), plan = object(answer, "plan");
  process.steps = integer(steps, "count");
  process.steps_per_s = real(steps, "per_s");
  process.input_for_s = real(answer, "input_for_s");
  process.cores = real(answer, "cores");
  process.has_plan = plan.value("is_active", json()) == json(true);
  process.plans_begun = integer(plan, "begun");
  process.in_flight_count = integer(answer, "in_flight_count");
  if (const auto list = answer.find("in_flight"); list != answer.end() && list->is_array())
    for (const json& one : *list)
      if (one.is_object()) process.in_flight.push_back(parse_in_flight(one));
  process.elsewhere = parse_elsewhere(answer);
  parse_starting(answer, process);
  process.stragglers = parse_stragglers(answer);
  process.answer = std::move(answer);
  return process;
}

std::vector<Rank> waits_for(const Process& process, const std::vector<Process>& all,
                            const std::vector<Absent>& absent) {
  std::vector<Rank> missing;
  if (process.starting) return process.starting->missing;
  if (process.in_flight.empty() || !process.failure.empty()) return missing;
  const InFlight& oldest = process.in_flight.front();
  if (oldest.age_s < kSureAfter_s) return missing;
  const auto is_member = [&](Rank rank) {
    return oldest.members.empty() || std::ranges::find(oldest.members, rank) != oldest.members.end();
  };
  for (const Process& other : all) {
    if (other.job != process.job || other.rank < 0 || other.rank == process.rank) continue;
    const bool is_whole = static_cast<int64_t>(other.in_flight.size()) == other.in_flight_count;
    if (is_member(other.rank) && is_whole && find(other, oldest) == nullptr && !has_joined(other))
      missing.push_back(other.rank);
  }
  for (const Absent& one : absent)
    if (missing.empty() && one.is_here && one.job == process.job)
      std::ranges::copy_if(one.ranks, std::back_inserter(missing), is_member);
  std::ranges::sort(missing);
  return missing;
}

std::vector<Absent> unreached(const std::vector<Process>& all, const std::vector<Absent>& absent) {
  std::map<std::pair<std::string, Rank>, std::string> hosts;  // by job and rank
  for (const Process& one : all)
    for (const auto& [host, ranks] : one.elsewhere)
      for (const Rank rank : ranks) hosts[{one.job, rank}] = host;
  for (const Process& one : all) hosts.erase({one.job, one.rank});
  for (const Absent& one : absent)
    for (const Rank rank : one.ranks) hosts.erase({one.job, rank});
  std::map<std::pair<std::string, std::string>, std::vector<Rank>> by_host;  // and job
  for (const auto& [rank, host] : hosts) by_host[{rank.first, host}].push_back(rank.second);
  std::vector<Absent> out;
  for (const auto& [host, ranks] : by_host)
    out.push_back({.job = host.first,
                   .host = host.second,
                   .ranks = ranks,
                   .why = "no rueda run reaches that host from here; run this command there"});
  return out;
}

std::vector<Rank> unknown_ranks(const std::vector<Process>& ranks_of_job, const std::vector<Absent>& absent) {
  std::vector<Rank> unknown;
  const Rank size = ranks_of_job.empty() ? 0 : ranks_of_job.front().size;
  const auto is_absent = [&](Rank rank) {
    return std::ranges::any_of(absent, [&](const Absent& one) {
      return one.job == ranks_of_job.front().job && std::ranges::find(one.ranks, rank) != one.ranks.end();
    });
  };
  for (Rank rank = 0; rank < size; ++rank)
    if (std::ranges::find(ranks_of_job, rank, &Process::rank) == ranks_of_job.end() && !is_absent(rank))
      unknown.push_back(rank);
  return unknown;
}

std::vector<Absent> silent(const std::vector<Process>& all, const std::vector<Absent>& absent,
                           const std::vector<Unanswered>& processes) {
  std::map<std::string, std::vector<Process>> jobs;
  for (const Process& one : all)
    if (!one.job.empty()) jobs[one.job].push_back(one);
  std::vector<Absent> out;
  for (const auto& [job, ranks] : jobs)
    if (std::vector<Rank> unknown = unknown_ranks(ranks, absent); !unknown.empty())
      out.push_back({.job = job, .host = ranks.front().host, .ranks = std::move(unknown), .why = {}});
  if (out.size() != 1 || processes.empty() || processes.size() > out.front().ranks.size()) return {};
  std::string& why = out.front().why;
  for (const auto& [pid, state] : processes)
    why += fmt::format("{}process {} did not answer; {}", why.empty() ? "" : "; ", pid,
                       why_no_answer(state, pid));
  out.front().is_here = true;
  return out;
}

std::string ranges(std::vector<Rank> ranks) {
  std::ranges::sort(ranks);
  std::string out;
  for (size_t i = 0; i < ranks.size();) {
    size_t end = i + 1;
    while (end < ranks.size() && ranks[end] <= ranks[end - 1] + 1) ++end;
    out += (out.empty() ? "" : ", ") + std::to_string(ranks[i]);
    if (ranks[end - 1] != ranks[i]) out += "-" + std::to_string(ranks[end - 1]);
    i = end;
  }
  return out;
}

}  // namespace rueda::observe
