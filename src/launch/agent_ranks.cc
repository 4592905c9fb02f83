// The part of AgentLoop that watches ranks and ends them.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "launch/agent_loop.h"
#include "launch/processes.h"
#include "launch/rank_files.h"

namespace rueda::launch {
namespace {

// What a rank of an elastic job has left in its process group would use the memory and the devices that its
// successor needs.
void end_group(pid_t rank) {
  for (const pid_t pid : descendants_of(getpid()))
    if (getpgid(pid) == rank) kill(pid, SIGKILL);
}

}  // namespace

// Of an elastic job. A rank that comes after the stop is reported as ended, so that nobody waits for it.
void AgentLoop::on_elastic_message(const AgentMessage& message) {
  if (message.type == MessageType::kEndRank) {
    const auto number = ByteReader(message.payload).get<int32_t>();
    for (const RankProcess& one : ranks_)
      if (one.job.rank == number && !one.has_ended && one.pid > 0) kill(-one.pid, SIGKILL);
    return;
  }
  if (message.type == MessageType::kViewChange) {
    const Result<ViewChangeFor> change = decode_view_change(message.payload);
    if (!change.is_ok()) return lose_launcher(change.status().why);
    if (const auto report = boards_.write(change.value())) send(MessageType::kBoard, encode(*report));
    return;
  }
  Result<RankJob> rank = decode_rank_job(message.payload);
  if (!rank.is_ok() || !job_) return lose_launcher("the launcher sent a malformed start of a rank");
  ranks_.push_back({.job = std::move(rank).value()});
  if (is_stopping_) leave_unstarted({.was_stopped = 1, .trouble = "stopped by rueda before its start"});
}

void AgentLoop::reap() {
  int status = 0;
  const Nanos now = monotonic_now();  // one time for all: in which order they died is unknown
  bool has_waited = false;
  for (pid_t pid = 0; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
    if (branches_.on_reaped(pid, status)) continue;
    if (WIFSIGNALED(status) && ends_job(WTERMSIG(status)) && !std::exchange(has_waited, true))
      await_same_signal();
    // The kernel may have given the pid of a rank that has ended to a rank that was started later.
    const auto rank = std::ranges::find_if(
        ranks_, [pid](const RankProcess& one) { return one.pid == pid && !one.has_ended; });
    if (rank != ranks_.end()) on_rank_end(*rank, status, now);
  }
}

void AgentLoop::on_rank_end(RankProcess& rank, int wait_status, Nanos now) {
  rank.has_ended = true;
  boards_.forget(rank.job.rank);
  if (job_->is_elastic) end_group(rank.pid);
  const auto pass = [this](MessageType type, std::span<const std::byte> payload) { send(type, payload); };
  drain(rank, pass);  // its last output must be sent before its exit is reported
  if (!job_->stage.empty()) send_result_file(private_dir_, rank.job.rank, pass);
  if (job_->collects_metrics) send_metrics(private_dir_, rank.job.rank, pass);
  Exit exit;
  exit.rank = rank.job.rank;
  exit.pid = rank.pid;
  exit.at = now;
  exit.was_stopped = is_stopping_ ? 1 : 0;
  if (WIFSIGNALED(wait_status)) exit.signal = WTERMSIG(wait_status);
  if (WIFEXITED(wait_status)) exit.exit_code = WEXITSTATUS(wait_status);
  if (exit.signal == SIGKILL && !is_stopping_ && oom_kills_ >= 0)
    exit.was_out_of_memory = oom_kills() > oom_kills_ ? 1 : 0;
  send(MessageType::kExit, encode(exit));
}

// Other ranks cannot see a process of another host.
void AgentLoop::look_at_ranks() {
  std::vector<std::pair<Rank, pid_t>> running;
  for (const RankProcess& rank : ranks_)
    if (rank.pid != 0 && !rank.has_ended) running.emplace_back(rank.job.rank, rank.pid);
  if (const auto news = held_ranks_.look(running)) send(MessageType::kHeld, status::encode(*news));
}

bool AgentLoop::have_all_ended() const {
  if (job_ && job_->is_elastic && !is_stopping_) return false;
  return std::ranges::all_of(ranks_, &RankProcess::has_ended);
}

// All ranks have ended.
void AgentLoop::sweep(Nanos now) {
  const std::vector<pid_t> spared = is_launcher_lost_ ? std::vector<pid_t>() : branches_.running();
  if (leftovers_.are_over() || !leftovers_.end(now, spared)) return;
  for (RankProcess& rank : ranks_) {
    drain(rank, [this](auto type, auto payload) { send(type, payload); });
    rank.out.reset();
    rank.err.reset();
  }
  if (is_launcher_lost_) return;
  send(MessageType::kBye, {});
  is_bye_sent_ = true;
}

}  // namespace rueda::launch
