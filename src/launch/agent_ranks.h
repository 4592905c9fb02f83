// The ranks of one agent: starts them, passes on what they write, signals them, and ends what they leave.
// Whatever happens to one is told to the launcher.
#pragma once

#include <sys/types.h>

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "launch/agent_messages.h"
#include "launch/boards.h"
#include "launch/cores.h"
#include "launch/held_ranks.h"
#include "launch/leftovers.h"
#include "launch/poll_set.h"
#include "launch/rank_process.h"
#include "launch/rank_status_query.h"

namespace rueda::launch {

// One thread, of the process whose children they are.
class AgentRanks {
 public:
  // folder: the private directory of the agent. send: to the launcher.
  AgentRanks(std::string folder, SendMessage send);

  // ---- the job ----
  // Once. start_some() then starts its ranks. has_joined: the launcher has not started this agent.
  void begin(Job job, bool has_joined);
  [[nodiscard]] const std::optional<Job>& job() const { return job_; }
  // Of an elastic job. One that comes after the stop is reported as ended, so that nobody waits for it.
  void add(RankJob rank);
  void end(int32_t rank);
  void write(const ViewChangeFor& change);
  [[nodiscard]] std::unique_ptr<RankStatusQuery> ask(Question question) const;

  // ---- the loop ----
  // Starts as many ranks as one turn of the loop allows. Between turns the loop hears the launcher, which may
  // have stopped the job.
  void start_some();
  [[nodiscard]] bool are_starting() const { return next_start_ < ranks_.size(); }
  // The pipes in which they write.
  void watch(PollSet& set);
  // can_send: the launcher reads what it is sent.
  void tick(Nanos now, bool can_send);
  // When tick() must be called again, other than in a second.
  [[nodiscard]] std::optional<Nanos> wake(Nanos now) const;
  // Other ranks cannot see a process of another host.
  void look_at_processes();
  // A child has ended, if it was a rank. now: one time for all that are reaped together.
  void on_reaped(pid_t pid, int wait_status, Nanos now);

  // ---- endings ----
  void signal(int signal);
  // first: the signal that the ranks get now; 0: they have it. Ranks that were told before are not told
  // again.
  void stop(Nanos grace, int first);
  void kill();
  [[nodiscard]] bool are_stopping() const { return is_stopping_; }
  // And none follows.
  [[nodiscard]] bool have_all_ended() const;
  // Called again and again when all have ended. Returns whether nothing is left of them, once. spared: these
  // children of ours, and what is below them, are not theirs.
  bool sweep(Nanos now, std::span<const pid_t> spared);
  [[nodiscard]] bool are_swept() const { return leftovers_.are_over(); }

 private:
  void start(size_t index);
  Result<pid_t> spawn_rank(RankProcess& rank, std::vector<int> cores);
  void report_unstarted(RankProcess& rank, Exit why);
  void leave_unstarted(const Exit& why);
  void on_end(RankProcess& rank, int wait_status, Nanos now);
  void send_all_metrics(Nanos now);
  void begin_end();
  [[nodiscard]] std::string stop_file() const { return folder_ + "/stopping"; }

  std::string folder_;
  SendMessage send_;
  std::optional<Job> job_;
  Variables common_;                 // the part of the environment that all ranks share
  std::vector<PhysicalCore> cores_;  // to bind ranks to
  std::deque<RankProcess> ranks_;    // references stay valid while ranks are added
  HeldRanks held_ranks_;
  Boards boards_;
  size_t next_start_ = 0;  // index into ranks_: the first that was not started yet
  bool is_stopping_ = false;
  Nanos kill_at_ = 0;  // 0 = not stopping, or already killed
  Nanos next_metrics_ = 0;
  Leftovers leftovers_;
  int64_t oom_kills_ = -1;  // at the start
};

}  // namespace rueda::launch
