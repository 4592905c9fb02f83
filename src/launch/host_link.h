// The launcher's connection to the agent of one host.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "launch/agent_clock.h"
#include "launch/agent_messages.h"
#include "launch/out_queue.h"
#include "launch/starters/starter.h"

namespace rueda::launch {

// An agent sends a pong once per interval. An agent that has sent nothing for kSilence counts as silent.
inline constexpr Nanos kPingInterval = kSecond;
inline constexpr Nanos kSilence = 2 * kPingInterval;

// How an agent is reached that another agent has started: through the link of that one.
struct BranchWay {
  int parent = -1;          // an index of hosts
  std::string parent_host;  // its name
  SendMessage tell;         // kToBranch or kEndBranch, without the number of the branch
};

// One thread. Descriptors are non-blocking; the owner polls them.
class HostLink {
 public:
  HostLink(std::string host, StartWay way);

  void attach(AgentProcess process);
  void attach(BranchWay way);
  void name(std::string host) { host_ = std::move(host); }  // of an agent that has joined
  void send(MessageType type, std::span<const std::byte> payload = {});
  void flush();
  // Reads what is there. Messages about the agent itself (hello, pong, bye) are kept here; those about a rank
  // are handed on. Closes on end of file and on garbage.
  void read_messages(const std::function<void(const AgentMessage&)>& on_rank_message);
  // The same for bytes of a branch.
  void feed(std::span<const std::byte> bytes,
            const std::function<void(const AgentMessage&)>& on_rank_message);
  // Reads the stderr of the agent, ssh or srun; returns whole new lines.
  std::string read_errors();
  std::string take_errors(std::string_view text);
  void on_reaped(int wait_status);
  void look_for_end();  // of a process whose status nobody tells us
  // why: for lost_because; "" = use the way its process ended.
  void close(const std::string& why);
  void signal(int number) const;  // to the process we started, if it still runs
  // Ends an agent that has been silent for longer than the timeout (0 = no timeout), and one that said bye
  // but does not exit.
  void check_silence(Nanos now, Nanos timeout);
  // SIGKILL to the process we started, and to the worker if it runs on this machine.
  void force_end(Nanos now);

  // Converts a time of the agent's clock to ours.
  [[nodiscard]] Nanos to_our_clock(Nanos agent_clock) const;

  // The agent was started and has ended without a bye, and everything it sent has been read.
  [[nodiscard]] bool is_lost() const;
  // The second half of a sentence: "its agent was killed by SIGKILL".
  [[nodiscard]] std::string lost_because() const;
  [[nodiscard]] bool is_over() const;  // nothing more is expected from it

  [[nodiscard]] const std::string& host() const { return host_; }
  [[nodiscard]] StartWay way() const { return way_; }
  [[nodiscard]] bool is_remote() const { return way_ != StartWay::kHere; }
  [[nodiscard]] const std::optional<Hello>& hello() const { return hello_; }
  void note_job() { has_job_ = true; }  // of an elastic job: the agent was given it
  [[nodiscard]] bool has_job() const { return has_job_; }
  void note_dismissal() { was_dismissed_ = true; }  // of an elastic job: the host is to go
  [[nodiscard]] bool was_dismissed() const { return was_dismissed_; }
  [[nodiscard]] bool has_said_bye() const { return has_said_bye_; }
  [[nodiscard]] bool is_attached() const { return is_attached_; }
  // What was started here; nothing, if it is a branch.
  [[nodiscard]] const AgentProcess& process() const { return process_; }
  [[nodiscard]] const std::optional<BranchWay>& branch() const { return branch_; }
  [[nodiscard]] bool wants_to_write() const { return process_.in.is_open() && !queue_.is_empty(); }
  [[nodiscard]] bool has_joined() const { return way_ == StartWay::kJoined; }
  // Of one that has joined, only the connection is known here.
  [[nodiscard]] bool is_reaped() const {
    return wait_status_.has_value() || (has_joined() && is_attached_ && !is_open());
  }
  [[nodiscard]] bool is_open() const { return process_.out.is_open() || is_branch_open_; }
  [[nodiscard]] Nanos last_heard() const { return last_heard_; }
  [[nodiscard]] bool is_silent(Nanos now) const { return now - last_heard_ > kSilence; }
  void excuse_silence(Nanos now) { last_heard_ = now; }  // we did not listen

 private:
  void on_message(const AgentMessage& message,
                  const std::function<void(const AgentMessage&)>& on_rank_message);

  std::string host_;
  StartWay way_;
  AgentProcess process_;
  std::optional<BranchWay> branch_;
  bool is_attached_ = false, is_branch_open_ = false;
  MessageReader reader_{kAgentMagic};
  OutQueue queue_;
  std::optional<Hello> hello_;
  bool has_said_bye_ = false, has_job_ = false, was_dismissed_ = false;
  std::string error_partial_, error_tail_;  // the last KiB, for messages
  std::optional<int> wait_status_;
  std::string closed_because_;
  AgentClock clock_;
  Nanos last_heard_ = 0;
};

}  // namespace rueda::launch
