// The worker of an agent: a poll loop on one thread. See agent.h.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launch/agent_messages.h"
#include "launch/agent_ranks.h"
#include "launch/branches.h"
#include "launch/joining.h"
#include "launch/out_queue.h"
#include "launch/outside_signals.h"
#include "launch/rank_status_query.h"
#include "rueda/base/unique_fd.h"

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
  void tick(Nanos now);
  void sweep(Nanos now);
  [[nodiscard]] bool is_finished() const;
  // launcher
  void read_launcher();
  void on_message(const AgentMessage& message);
  void send(MessageType type, std::span<const std::byte> payload);
  SendMessage sender();
  void on_branch_message(const AgentMessage& message);
  void on_job(const AgentMessage& message);
  void on_elastic_message(const AgentMessage& message);
  void on_refused(std::string_view why);
  void begin_query(const AgentMessage& message);
  void lose_launcher(const std::string& why);
  // signals
  void read_signals();
  void take_signals();
  void on_outside_signal(int signal, pid_t sender, bool is_passed_on);
  bool leaves_job(int signal);
  void on_launcher_signal(int signal);
  void on_signal_elsewhere(int signal);
  void await_same_signal();
  void reap();

  std::string release_, private_dir_;
  std::optional<Joining> joining_;
  pid_t guardian_;
  UniqueFd signals_;
  MessageReader reader_;
  OutQueue out_;
  Branches branches_;
  AgentRanks ranks_;
  std::unique_ptr<RankStatusQuery> query_;  // what the launcher has asked last
  OutsideSignals outside_signals_;
  bool keeps_grace_ = false;  // a scheduler ends this agent or another one: also without the launcher
  int end_signal_ = 0;        // what the agent of another host has got; SIGINT or SIGTERM
  bool is_leaving_ = false;   // a scheduler takes this host away from an elastic job
  bool is_launcher_lost_ = false, is_held_ = false, is_bye_sent_ = false;
  Nanos last_heard_ = 0, next_pong_ = 0;
};

}  // namespace rueda::launch
