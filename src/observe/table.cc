#include "observe/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "rueda/base/counted.h"

namespace rueda::observe {
namespace {

constexpr size_t kShownName = 40;
constexpr size_t kShownReason = 200;
constexpr double kHardlyComputes = 0.1;  // cores; on a GPU, too, a thread prepares the work

std::string amount(int64_t bytes) {
  double value = static_cast<double>(bytes);
  const char* unit = "B";
  for (const char* next : {"kB", "MB", "GB", "TB"}) {
    if (value < 1'000) break;
    value /= 1'000;
    unit = next;
  }
  return fmt::format("{:.{}f} {}", value, value < 10 && bytes >= 1'000 ? 1 : 0, unit);
}

// Text of a program must not move the cursor of the terminal.
std::string printable(std::string text, size_t most) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '?';
  if (text.size() > most) text = text.substr(0, most - 3) + "...";
  return text;
}

std::string doing(const Process& process) {
  if (process.starting) return fmt::format("init, {:.1f} s", process.starting->for_s);
  if (process.job.empty()) return "has no init yet, or has left";
  if (!process.failure.empty()) return "failed: " + printable(process.failure, 80);
  if (process.in_flight.empty()) {
    if (process.input_for_s) return fmt::format("waits for input, {:.1f} s", *process.input_for_s);
    if (process.cores && *process.cores < kHardlyComputes) return "sleeps or waits: it uses no core";
    return "computes";
  }
  const InFlight& oldest = process.in_flight.front();
  const std::string more =
      process.in_flight_count > 1 ? fmt::format(" and {} more", process.in_flight_count - 1) : "";
  return fmt::format("{} {}{}, {:.1f} s", oldest.what, printable(oldest.name, kShownName), more,
                     oldest.age_s);
}

std::string plan(const Process& process) {
  if (process.has_plan) return "active";
  return process.plans_begun > 0 ? "left" : "none";
}

std::string pid(const Process& process) {
  if (process.pid == process.own_pid) return std::to_string(process.pid);
  return fmt::format("{} ({})", process.pid == 0 ? "-" : std::to_string(process.pid), process.own_pid);
}

std::string ranks_text(const std::vector<Rank>& ranks) {
  return (ranks.size() == 1 ? "rank " : "ranks ") + ranges(ranks);
}

bool has_starting(const std::vector<Process>& ranks) {
  return std::ranges::any_of(ranks, [](const Process& one) { return one.starting.has_value(); });
}

// Ranks of an elastic job come to the next view one by one.
std::string view_text(const std::vector<Process>& ranks) {
  const int64_t newest = std::ranges::max_element(ranks, {}, &Process::view)->view;
  return newest == 0 ? "" : fmt::format(", view {}", newest);
}

using Row = std::vector<std::string>;

std::string aligned(const std::vector<Row>& rows) {
  std::vector<size_t> widths;
  for (const Row& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string out;
  for (const Row& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) line += fmt::format("{:<{}}  ", row[i], widths[i]);
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

std::map<std::string, std::vector<Process>> by_job(const std::vector<Process>& all) {
  std::map<std::string, std::vector<Process>> jobs;
  for (const Process& process : all) jobs[process.job].push_back(process);
  for (auto& [job, ranks] : jobs) std::ranges::sort(ranks, {}, &Process::rank);
  return jobs;
}

}  // namespace

std::string absent_text(const Absent& absent) {
  return fmt::format("{} on {}: {}", ranks_text(absent.ranks), printable(absent.host, kShownName),
                     printable(absent.why, kShownReason));
}

std::string status_table(const std::vector<Process>& all, const std::vector<Absent>& absent) {
  std::string out;
  for (const auto& [job, ranks] : by_job(all)) {
    if (!out.empty()) out += "\n";
    out += job.empty()
               ? (has_starting(ranks) ? "a job that starts\n" : "not in a job\n")
               : fmt::format("job {}{}: {} of {} {}\n", job, view_text(ranks), ranks.size(),
                             counted(ranks.front().size, "rank"), ranks.size() == 1 ? "is here" : "are here");
    const bool is_elastic = ranks.front().view > 0;
    std::vector<Row> rows{
        {"RANK", "HOST", "PID", "STEPS", "STEP/S", "MEMORY", "SENDS", "PLAN", "WAITS FOR", "DOES"}};
    if (is_elastic) rows.front().insert(rows.front().begin() + 1, "PROCESS");
    for (const Process& one : ranks) {
      const std::vector<Rank> missing = one.starting ? one.starting->missing : waits_for(one, all, absent);
      rows.push_back(
          {one.rank < 0 ? "-" : std::to_string(one.rank), one.host.empty() ? "-" : one.host, pid(one),
           std::to_string(one.steps), one.steps_per_s ? fmt::format("{:.2f}", *one.steps_per_s) : "-",
           amount(one.resident_bytes), one.link_bytes_per_s > 0 ? amount(one.link_bytes_per_s) + "/s" : "-",
           plan(one), missing.empty() ? "-" : ranks_text(missing), doing(one)});
      if (is_elastic) rows.back().insert(rows.back().begin() + 1, printable(one.process, kShownName));
    }
    out += aligned(rows);
    if (job.empty()) continue;
    for (const Process& one : ranks)
      for (const Straggler& straggler : one.stragglers)
        out += fmt::format(
            "STRAGGLER rank {} (host {}): the others waited {:.0f} % of the last {:.0f} s for it\n",
            straggler.rank, printable(straggler.host, kShownName), 100 * straggler.share, straggler.window_s);
    for (const Absent& one : absent)
      if (one.job == job) out += absent_text(one) + "\n";
    if (const std::vector<Rank> unknown = unknown_ranks(ranks, absent); !unknown.empty())
      out += fmt::format(
          "{}: not among this user's processes on this host: RUEDA_STATUS is 0 there, or it has another "
          "user, or a container with a folder of its own\n",
          ranks_text(unknown));
  }
  for (const Absent& one : absent)
    if (one.job.empty())
      out += fmt::format("job of rueda run, process {}: {}\n", one.launcher, absent_text(one));
  return out;
}

std::string status_json(const std::vector<Process>& all, const std::vector<Absent>& absent) {
  nlohmann::ordered_json out;
  out["jobs"] = nlohmann::ordered_json::array();
  out["ranks"] = nlohmann::ordered_json::array();
  for (const auto& [job, ranks] : by_job(all)) {
    if (!job.empty()) out["jobs"].push_back(job);
    for (const Process& one : ranks) {
      nlohmann::ordered_json rank = one.answer;
      if (one.pid != one.own_pid) rank["pid_here"] = one.pid;
      rank["waits_for"] = waits_for(one, all, absent);
      out["ranks"].push_back(std::move(rank));
    }
  }
  out["absent"] = nlohmann::ordered_json::array();
  for (const Absent& one : absent)
    out["absent"].push_back({{"job", one.job},
                             {"launcher", one.launcher},
                             {"host", one.host},
                             {"ranks", one.ranks},
                             {"why", one.why}});
  return out.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace rueda::observe
