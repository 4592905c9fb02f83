#include "observe/gather.h"

#include <algorithm>
#include <cstdlib>
#include <future>
#include <set>

#include "observe/job_view.h"
#include "rueda/base/process.h"
#include "rueda/status/folder.h"

namespace rueda::observe {
namespace {

// A launcher answers when the question says so, unless it is stopped.
constexpr int kSpareTime_ms = 1'000;

struct Asked {
  std::string socket;
  Result<status::Reply> answer;
};

std::vector<Asked> ask_all(const std::vector<std::string>& sockets, const std::string& what, int timeout_ms,
                           size_t max_bytes = status::kMaxReply) {
  std::vector<std::future<Result<status::Reply>>> asked;
  for (const std::string& socket : sockets)
    asked.push_back(std::async(std::launch::async,
                               [&, max_bytes] { return status::ask(socket, what, timeout_ms, max_bytes); }));
  std::vector<Asked> answers;
  for (size_t i = 0; i < sockets.size(); ++i) answers.push_back({sockets[i], asked[i].get()});
  return answers;
}

std::vector<Asked> ask_launchers(const std::vector<std::string>& sockets,
                                 const status::JobQuestion& question) {
  return ask_all(sockets, status::format_question(question), question.timeout_ms + kSpareTime_ms,
                 status::kMaxJobReply);
}

bool is_process(const std::string& target, int pid) {
  const bool is_number =
      target.size() < 10 && std::ranges::all_of(target, [](char c) { return c >= '0' && c <= '9'; });
  return is_number && !target.empty() && is_or_descends_from(pid, std::stoi(target));
}

bool is_job(const std::string& target, const std::string& job) {
  return target.empty() || (!job.empty() && job.starts_with(target));
}

// The name of a socket begins with the process id.
int pid_of(const std::string& socket) { return std::atoi(socket.c_str() + socket.rfind('/') + 1); }

Status nothing_found(const std::string& target, size_t others, const std::vector<std::string>& remarks) {
  std::string why = target.empty() ? "no process of this user on this host runs rueda"
                                   : "no job or process " + target + " of this user runs rueda on this host";
  if (others > 0) why += "; rueda status shows the " + std::to_string(others) + " that do";
  for (const std::string& remark : remarks) why += "; " + remark;
  return {Code::kUnavailable, why + (others > 0 ? "." : " (looked in " + status::folder_path() + ").")};
}

// The job of the ranks that this launcher has started on this host; empty: there are none.
std::string job_here(const Found& found, int launcher) {
  for (const Process& one : found.processes)
    if (one.reached_at.empty() && is_or_descends_from(one.pid, launcher)) return one.job;
  return {};
}

// Adds what the launcher says about other hosts, as far as it fits. Returns how many processes do not.
size_t add_job(Found& found, const std::string& socket, JobView job, const std::string& target) {
  const bool is_launcher = is_process(target, job.launcher);
  size_t others = 0;
  for (Process& process : job.processes) {
    // Hosts that share a folder of sockets have answered themselves.
    if (std::ranges::any_of(found.processes, [&](const Process& one) { return is_same(one, process); }))
      continue;
    if (!is_launcher && !is_job(target, process.job) && target != std::to_string(process.pid)) {
      ++others;
      continue;
    }
    found.processes.push_back(std::move(process));
    found.sockets.push_back(socket);
  }
  const std::string here = job_here(found, job.launcher);
  for (Absent& absent : job.absent) {
    if (absent.job.empty()) absent.job = here;
    if (is_launcher || is_job(target, absent.job)) found.absent.push_back(std::move(absent));
  }
  return others;
}

struct Wanted {
  const Process* process;
  RankStacks* stacks;
  const std::string* socket;
};

// answer: what a process said; empty: nothing, because of why.
void take_stacks(const Wanted& wanted, const std::string& answer, const std::string& why,
                 std::vector<std::string>& remarks) {
  const nlohmann::json read = nlohmann::json::parse(answer, nullptr, false);
  if (read.is_object() && read.contains("stacks"))
    wanted.stacks->stacks = read["stacks"];
  else
    remarks.push_back(!why.empty() ? why : "a process answered with something else than stacks.");
}

void take_job_stacks(const std::vector<Wanted>& all, const Asked& asked, std::vector<std::string>& remarks) {
  const Result<status::JobAnswer> job =
      asked.answer.is_ok() ? status::decode_job_answer(asked.answer.value().text) : asked.answer.status();
  if (!job.is_ok()) return remarks.push_back(job.status().why);
  for (const status::HostAnswer& host : job.value().hosts) {
    if (!host.missing.empty()) remarks.push_back("host " + host.host + ": " + host.missing);
    for (const status::ProcessAnswer& one : host.processes)
      for (const Wanted& wanted : all)
        if (*wanted.socket == asked.socket && wanted.process->reached_at == host.host &&
            wanted.process->pid == one.pid)
          take_stacks(wanted, one.text, one.missing, remarks);
  }
}

}  // namespace

Result<Found> find_processes(const std::string& target, int timeout_ms) {
  Found found;
  size_t others = 0;
  std::vector<int> unanswered;
  const std::string folder = status::folder_path();
  const status::JobQuestion question{.what = "status", .timeout_ms = timeout_ms};
  const std::vector<std::string> launchers = status::sockets_in(folder, status::kLauncherSocket);
  auto elsewhere = std::async(std::launch::async, [&] { return ask_launchers(launchers, question); });
  for (const auto& [socket, answer] : ask_all(status::sockets_in(folder), "status", timeout_ms)) {
    Result<Process> process =
        answer.is_ok() ? parse_process(answer.value().text) : Result<Process>(answer.status());
    if (process.is_ok()) process.value().pid = answer.value().pid;
    if (answer.status().code == Code::kTimeout) unanswered.push_back(pid_of(socket));
    if (!process.is_ok()) {
      found.remarks.push_back(process.status().why);
    } else if (is_job(target, process.value().job) || is_process(target, process.value().pid)) {
      found.processes.push_back(process.value());
      found.sockets.push_back(socket);
    } else {
      ++others;
    }
  }
  for (const Asked& one : elsewhere.get()) {
    const Result<status::JobAnswer> answer =
        one.answer.is_ok() ? status::decode_job_answer(one.answer.value().text) : one.answer.status();
    if (answer.is_ok())
      others += add_job(found, one.socket, view_of(answer.value()), target);
    else
      found.remarks.push_back(answer.status().why);
  }
  for (Absent& one : unreached(found.processes, found.absent)) found.absent.push_back(std::move(one));
  for (Absent& one : silent(found.processes, found.absent, unanswered))
    found.absent.push_back(std::move(one));
  if (!found.processes.empty() || !found.absent.empty()) return found;
  return nothing_found(target, others, found.remarks);
}

std::vector<RankStacks> ask_for_stacks(const Found& found, Rank rank, int timeout_ms,
                                       std::vector<std::string>& remarks) {
  std::vector<RankStacks> out;
  out.reserve(found.processes.size());  // its items are pointed to
  std::vector<Wanted> wanted;
  std::vector<std::string> sockets;
  std::set<std::string> launchers;
  for (size_t i = 0; i < found.processes.size(); ++i) {
    const Process& process = found.processes[i];
    if (rank >= 0 && process.rank != rank) continue;
    RankStacks& stacks =
        out.emplace_back(RankStacks{.rank = process.rank, .pid = process.own_pid, .stacks = {}});
    wanted.push_back({.process = &process, .stacks = &stacks, .socket = &found.sockets[i]});
    if (process.reached_at.empty())
      sockets.push_back(found.sockets[i]);
    else
      launchers.insert(found.sockets[i]);
  }
  const status::JobQuestion question{.what = "stacks", .timeout_ms = timeout_ms, .rank = rank};
  auto elsewhere = std::async(std::launch::async, [&] {
    return ask_launchers({launchers.begin(), launchers.end()}, question);
  });
  for (const Asked& asked : ask_all(sockets, "stacks", timeout_ms))
    for (const Wanted& one : wanted)
      if (*one.socket == asked.socket)
        take_stacks(one, asked.answer.is_ok() ? asked.answer.value().text : "",
                    asked.answer.is_ok() ? "" : asked.answer.status().why, remarks);
  for (const Asked& asked : elsewhere.get()) take_job_stacks(wanted, asked, remarks);
  return out;
}

}  // namespace rueda::observe
