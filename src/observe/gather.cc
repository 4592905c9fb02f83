#include "observe/gather.h"

#include <algorithm>
#include <cstdlib>
#include <future>
#include <iterator>
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

Result<status::JobAnswer> job_answer_of(const Asked& asked) {
  if (!asked.answer.is_ok()) return asked.answer.status();
  return status::decode_job_answer(asked.answer.value().text);
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
  if (others > 0)
    why += "; rueda status shows the " + std::to_string(others) +
           (others == 1 ? " process that does" : " processes that do");
  for (const std::string& remark : remarks) why += "; " + remark;
  std::string folders;
  for (const std::string& folder : status::folders()) folders += (folders.empty() ? "" : " and ") + folder;
  return {Code::kUnavailable, why + (others > 0 ? "." : " (looked in " + folders + ").")};
}

// The job of the ranks that this launcher has started on this host; empty: there are none.
std::string job_here(const Found& all, int launcher) {
  for (const Process& one : all.processes)
    if (one.reached_at.empty() && is_or_descends_from(one.pid, launcher)) return one.job;
  return {};
}

// Adds what the launcher says about other hosts.
void add_job(Found& all, const std::string& socket, JobView view) {
  for (Process& process : view.processes) {
    // Hosts that share a folder of sockets have answered themselves.
    if (std::ranges::any_of(all.processes, [&](const Process& one) { return is_same(one, process); }))
      continue;
    process.launcher = view.launcher;
    all.processes.push_back(std::move(process));
    all.sockets.push_back(socket);
  }
  const std::string here = job_here(all, view.launcher);
  for (Absent& absent : view.absent) {
    if (absent.job.empty()) absent.job = here;
    all.absent.push_back(std::move(absent));
  }
}

// The jobs that a target means: a process stands for its whole job. Processes of other hosts have ids of
// their own there.
std::set<std::string> jobs_of(const Found& all, const std::string& target) {
  std::set<std::string> jobs;
  for (const Process& one : all.processes) {
    const bool is_meant = one.reached_at.empty()
                              ? is_process(target, one.pid)
                              : is_process(target, one.launcher) || target == std::to_string(one.pid);
    if (!one.job.empty() && (is_meant || is_job(target, one.job))) jobs.insert(one.job);
  }
  for (const Absent& one : all.absent)
    if (!one.job.empty() && (is_process(target, one.launcher) || is_job(target, one.job)))
      jobs.insert(one.job);
  return jobs;
}

// Returns how many processes are left out.
size_t select(Found& all, const std::string& target) {
  if (target.empty()) return 0;
  const std::set<std::string> jobs = jobs_of(all, target);
  Found meant{.processes = {}, .sockets = {}, .absent = {}, .remarks = std::move(all.remarks)};
  for (size_t i = 0; i < all.processes.size(); ++i) {
    Process& one = all.processes[i];
    if (!(one.job.empty() ? is_process(target, one.pid) : jobs.contains(one.job))) continue;
    meant.processes.push_back(std::move(one));
    meant.sockets.push_back(std::move(all.sockets[i]));
  }
  for (Absent& one : all.absent)
    if (one.job.empty() ? is_process(target, one.launcher) : jobs.contains(one.job))
      meant.absent.push_back(std::move(one));
  const size_t left_out = all.processes.size() - meant.processes.size();
  all = std::move(meant);
  return left_out;
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

// What each process of another host has said, or why it has not. Hosts that have not answered are named.
void each_answer(const Asked& asked, std::vector<std::string>& remarks,
                 const std::function<void(const std::string& host, const status::ProcessAnswer&)>& take) {
  const Result<status::JobAnswer> job = job_answer_of(asked);
  if (!job.is_ok()) return remarks.push_back(job.status().why);
  for (const status::HostAnswer& host : job.value().hosts) {
    if (!host.missing.empty()) remarks.push_back("host " + host.host + ": " + host.missing);
    for (const status::ProcessAnswer& one : host.processes) take(host.host, one);
  }
}

void take_job_stacks(const std::vector<Wanted>& all, const Asked& asked, std::vector<std::string>& remarks) {
  each_answer(asked, remarks, [&](const std::string& host, const status::ProcessAnswer& one) {
    for (const Wanted& wanted : all)
      if (*wanted.socket == asked.socket && wanted.process->reached_at == host &&
          wanted.process->pid == one.pid)
        take_stacks(wanted, one.text, one.missing, remarks);
  });
}

void ask_for_record_elsewhere(const Process& process, const std::string& launcher, int timeout_ms,
                              const TakeRecord& take, std::vector<std::string>& remarks) {
  const std::vector<Asked> asked =
      ask_launchers({launcher}, {.what = "record", .timeout_ms = timeout_ms, .rank = process.rank});
  each_answer(asked.front(), remarks, [&](const std::string& host, const status::ProcessAnswer& one) {
    if (one.pid != process.pid || host != process.reached_at) return;
    if (one.missing.empty())
      take(process.rank, one.text);
    else
      remarks.push_back("rank " + std::to_string(process.rank) + " on " + host + ": " + one.missing);
  });
}

}  // namespace

void ask_for_records(const Found& found, int timeout_ms, const TakeRecord& take,
                     std::vector<std::string>& remarks) {
  std::vector<std::string> sockets;
  std::vector<Rank> ranks;
  for (size_t i = 0; i < found.processes.size(); ++i) {
    if (!found.processes[i].reached_at.empty() || found.processes[i].rank < 0) continue;
    sockets.push_back(found.sockets[i]);
    ranks.push_back(found.processes[i].rank);
  }
  const std::vector<Asked> answers = ask_all(sockets, "record", timeout_ms, status::kMaxJobReply);
  for (size_t i = 0; i < answers.size(); ++i) {
    const Result<status::Reply>& answer = answers[i].answer;
    if (answer.is_ok())
      take(ranks[i], answer.value().text);
    else
      remarks.push_back("rank " + std::to_string(ranks[i]) + ": " + answer.status().why);
  }
  for (size_t i = 0; i < found.processes.size(); ++i)
    if (!found.processes[i].reached_at.empty())
      ask_for_record_elsewhere(found.processes[i], found.sockets[i], timeout_ms, take, remarks);
}

Result<Found> find_processes(const std::string& target, int timeout_ms) {
  Found found;
  std::vector<Unanswered> unanswered;
  std::vector<std::string> sockets, launchers, about_unanswered;
  for (const std::string& folder : status::folders()) {
    std::ranges::move(status::sockets_in(folder), std::back_inserter(sockets));
    std::ranges::move(status::sockets_in(folder, status::kLauncherSocket), std::back_inserter(launchers));
  }
  const status::JobQuestion question{.what = "status", .timeout_ms = timeout_ms};
  auto elsewhere = std::async(std::launch::async, [&] { return ask_launchers(launchers, question); });
  for (const auto& [socket, answer] : ask_all(sockets, "status", timeout_ms)) {
    Result<Process> process =
        answer.is_ok() ? parse_process(answer.value().text) : Result<Process>(answer.status());
    const bool is_late = answer.status().code == Code::kTimeout;
    if (is_late) unanswered.push_back({pid_of(socket), look_at_process(pid_of(socket), 0).state});
    if (!process.is_ok()) {
      (is_late ? about_unanswered : found.remarks).push_back(process.status().why);
      continue;
    }
    process.value().pid = answer.value().pid;
    found.processes.push_back(std::move(process).value());
    found.sockets.push_back(socket);
  }
  for (const Asked& one : elsewhere.get()) {
    const Result<status::JobAnswer> answer = job_answer_of(one);
    if (answer.is_ok())
      add_job(found, one.socket, view_of(answer.value()));
    else
      found.remarks.push_back(answer.status().why);
  }
  for (Absent& one : unreached(found.processes, found.absent)) found.absent.push_back(std::move(one));
  std::vector<Absent> here = silent(found.processes, found.absent, unanswered);
  if (here.empty()) std::ranges::move(about_unanswered, std::back_inserter(found.remarks));
  std::ranges::move(here, std::back_inserter(found.absent));
  const size_t others = select(found, target);
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
    RankStacks& stacks = out.emplace_back(RankStacks{.rank = process.rank,
                                                     .pid = process.own_pid,
                                                     .job = process.job,
                                                     .host = process.host,
                                                     .stacks = {}});
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
