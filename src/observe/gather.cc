#include "observe/gather.h"

#include <algorithm>
#include <future>

#include "rueda/base/process.h"
#include "rueda/status/folder.h"

namespace rueda::observe {
namespace {

constexpr int kStatusTime_ms = 2'000;
constexpr int kStacksTime_ms = 10'000;
constexpr int kMostAncestors = 64;

std::vector<std::pair<std::string, Result<std::string>>> ask_all(const std::vector<std::string>& sockets,
                                                                 const std::string& what, int timeout_ms) {
  std::vector<std::future<Result<std::string>>> asked;
  for (const std::string& socket : sockets)
    asked.push_back(std::async(std::launch::async, [&] { return status::ask(socket, what, timeout_ms); }));
  std::vector<std::pair<std::string, Result<std::string>>> answers;
  for (size_t i = 0; i < sockets.size(); ++i) answers.emplace_back(sockets[i], asked[i].get());
  return answers;
}

bool is_or_descends_from(int pid, int ancestor) {
  for (int i = 0; i < kMostAncestors && pid > 1; ++i) {
    if (pid == ancestor) return true;
    pid = look_at_process(pid, 0).parent;
  }
  return false;
}

bool fits(const Process& process, const std::string& target) {
  if (target.empty() || (!process.job.empty() && process.job.starts_with(target))) return true;
  const bool is_number =
      target.size() < 10 && std::ranges::all_of(target, [](char c) { return c >= '0' && c <= '9'; });
  return is_number && is_or_descends_from(process.pid, std::stoi(target));
}

}  // namespace

Result<Found> find_processes(const std::string& target) {
  Found found;
  const std::string folder = status::folder_path();
  size_t others = 0;
  for (const auto& [socket, answer] : ask_all(status::sockets_in(folder), "status", kStatusTime_ms)) {
    const Result<Process> process =
        answer.is_ok() ? parse_process(answer.value()) : Result<Process>(answer.status());
    if (!process.is_ok()) {
      found.remarks.push_back(process.status().why);
    } else if (fits(process.value(), target)) {
      found.processes.push_back(process.value());
      found.sockets.push_back(socket);
    } else {
      ++others;
    }
  }
  if (!found.processes.empty()) return found;
  std::string why = target.empty() ? "no process of this user on this host runs rueda"
                                   : "no job or process " + target + " of this user runs rueda on this host";
  if (others > 0) why += "; rueda status shows the " + std::to_string(others) + " that do";
  for (const std::string& remark : found.remarks) why += "; " + remark;
  return Status(Code::kUnavailable, why + (others > 0 ? "." : " (looked in " + folder + ")."));
}

std::vector<RankStacks> ask_for_stacks(const Found& found, Rank rank, std::vector<std::string>& remarks) {
  std::vector<std::string> sockets;
  std::vector<RankStacks> out;
  for (size_t i = 0; i < found.processes.size(); ++i) {
    if (rank >= 0 && found.processes[i].rank != rank) continue;
    sockets.push_back(found.sockets[i]);
    out.push_back({.rank = found.processes[i].rank, .pid = found.processes[i].pid, .stacks = {}});
  }
  const auto answers = ask_all(sockets, "stacks", kStacksTime_ms);
  for (size_t i = 0; i < answers.size(); ++i) {
    const nlohmann::json answer = answers[i].second.is_ok()
                                      ? nlohmann::json::parse(answers[i].second.value(), nullptr, false)
                                      : nlohmann::json();
    if (answer.is_object() && answer.contains("stacks"))
      out[i].stacks = answer["stacks"];
    else
      remarks.push_back(answers[i].second.is_ok() ? "a process answered with something else than stacks."
                                                  : answers[i].second.status().why);
  }
  return out;
}

}  // namespace rueda::observe
