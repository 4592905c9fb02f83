// The worker of an agent: a poll loop on one thread. See agent.h.
#pragma once

#include <sys/types.h>

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launch/agent_messages.h"
#include "launch/boards.h"
#include "launch/branches.h"
#include "launch/cores.h"
#include "launch/held_ranks.h"
#include "launch/joining.h"
#include "launch/leftovers.h"
#include "launch/out_queue.h"
#include "launch/outside_signals.h"
#include "launch/rank_process.h"
#include "launch/rank_status_query.h"
#include "rueda/base/unique_fd.h"
#include "rueda/status/job_news.h"

namespace rueda::launch {

class AgentLoop {
 public:
  struct Self {
    std::string release;
    std::string private_dir;         // a directory of this agent, mode 0700
    std::optional<Joining> joining;  // empty: the launcher has started it
  };
  // signals: a signalfd for SIGCHLD and the signals that schedulers send to an agent, all of which are
  // blocked.
  AgentLoop(Self self, pid_t guardian, UniqueFd signals);
  int run();

 private:
  void say_hello();
  void step();
  [[nodiscard]] bool is_finished() const;
  // launcher
  void read_launcher();
  void on_message(const AgentMessage& message);
  void send(MessageType type, std::span<const std::byte> payload);
  void on_branch_message(const AgentMessage& message);
  void begin_query(const AgentMessage& message);
  void lose_launcher(const std::string& why);
  // ranks
  void on_refused(std::string_view why);
  void start_job(Job job);
  void on_elastic_message(const AgentMessage& message);
  [[nodiscard]] bool is_starting() const { return next_start_ < ranks_.size() && !is_held_; }
  void start_ranks();
  void start_rank(size_t index);
  Result<pid_t> spawn_rank(RankProcess& rank, std::vector<int> cores);
  void report_unstarted(RankProcess& rank, Exit why);
  void leave_unstarted(const Exit& why);
  void reap();
  void on_rank_end(RankProcess& rank, int wait_status, Nanos now);
  // signals
  void read_signals();
  void take_signals();
  void on_outside_signal(int signal, pid_t sender, bool is_passed_on);
  bool leaves_job(int signal);
  void on_launcher_signal(int signal);
  void on_signal_elsewhere(int signal);
  void await_same_signal();
  void look_at_ranks();
  // endings
  void signal_ranks(int signal);
  void begin_end();
  [[nodiscard]] std::string stop_file() const { return private_dir_ + "/stopping"; }
  void stop(Nanos grace, int first);
  void kill_ranks();
  void sweep(Nanos now);
  void tick(Nanos now);
  void send_all_metrics(Nanos now);
  [[nodiscard]] bool have_all_ended() const;

  std::string release_, private_dir_;
  std::optional<Joining> joining_;
  pid_t guardian_;
  UniqueFd signals_;
  MessageReader reader_;
  OutQueue out_;
  std::optional<Job> job_;
  Variables common_;                 // the part of the environment that all ranks share
  std::vector<PhysicalCore> cores_;  // to bind ranks to
  std::deque<RankProcess> ranks_;    // references stay valid while ranks are added
  HeldRanks held_ranks_;
  Boards boards_;
  Branches branches_;
  std::unique_ptr<RankStatusQuery> query_;  // what the launcher has asked last
  size_t next_start_ = 0;                   // index into ranks_: the first that was not started yet
  OutsideSignals outside_signals_;
  bool keeps_grace_ = false;  // a scheduler ends this agent or another one: also without the launcher
  int end_signal_ = 0;        // what the agent of another host has got; SIGINT or SIGTERM
  bool is_leaving_ = false;   // a scheduler takes this host away from an elastic job
  bool is_launcher_lost_ = false, is_held_ = false, is_stopping_ = false, is_bye_sent_ = false;
  Nanos last_heard_ = 0, next_pong_ = 0, next_metrics_ = 0;
  Nanos kill_at_ = 0;  // 0 = not stopping, or already killed
  Leftovers leftovers_;
  int64_t oom_kills_ = -1;  // at the start
};

}  // namespace rueda::launch
