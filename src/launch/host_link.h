// The launcher's end of the conversation with the agent of one host.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "launch/frames.h"
#include "launch/out_queue.h"
#include "launch/starters/starter.h"

namespace rueda::launch {

// One thread. Descriptors are non-blocking; the owner polls them.
class HostLink {
 public:
  HostLink(std::string host, bool is_remote);

  void attach(AgentProcess process);
  void send(FrameType type, std::span<const std::byte> payload = {});
  void flush();
  // Reads what is there and hands on whole frames. Closes on end of file and on garbage.
  void read_frames(const std::function<void(Frame)>& on_frame);
  // Reads the stderr of the agent or of ssh; returns whole new lines.
  std::string read_errors();
  void on_reaped(int wait_status);
  void close(const std::string& why);  // why: for lost_because; "" = see how its process ended
  void signal(int number) const;       // to what we started, if it was and is not gone
  // SIGKILL to what we started, and to the worker where it is on this machine. why: for lost_because, unless
  // it says bye all the same.
  void kill_agent(const std::string& why);

  void note_clock(Nanos agent_clock, Nanos arrived);
  // An agent's time in our clock: its offset is the least (arrival - sending) seen, too late by one least
  // latency.
  [[nodiscard]] Nanos to_our_clock(Nanos agent_clock) const;

  // Started but gone without a bye, and all it will ever say is read.
  [[nodiscard]] bool is_lost() const;
  [[nodiscard]] std::string lost_because()
      const;  // a sentence's second half: "its agent was killed by SIGKILL"

  [[nodiscard]] const std::string& host() const { return host_; }
  [[nodiscard]] bool is_remote() const { return is_remote_; }
  [[nodiscard]] pid_t pid() const { return process_.pid; }
  [[nodiscard]] int in() const { return process_.in.get(); }
  [[nodiscard]] int out() const { return process_.out.get(); }
  [[nodiscard]] int err() const { return process_.err.get(); }
  [[nodiscard]] bool wants_to_write() const { return process_.in.is_open() && !queue_.is_empty(); }
  [[nodiscard]] bool is_reaped() const { return wait_status_.has_value(); }
  [[nodiscard]] bool is_open() const { return process_.out.is_open(); }
  [[nodiscard]] Nanos last_heard() const { return last_heard_; }
  void set_last_heard(Nanos now) { last_heard_ = now; }

  std::optional<Hello> hello;
  bool has_said_bye = false;
  uint64_t started_ticks = 0;  // of the agent process: what is older is not its offspring

 private:
  std::string host_;
  bool is_remote_;
  AgentProcess process_;
  FrameReader reader_{kAgentMagic};
  OutQueue queue_;
  std::string error_partial_, error_tail_;  // the last KiB, for messages
  std::optional<int> wait_status_;
  std::string closed_because_;
  std::optional<Nanos> clock_offset_;
  Nanos last_heard_ = 0;
};

}  // namespace rueda::launch
