// The agents of a job, one per host that has ranks, as seen by the launcher.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "launch/host_link.h"
#include "launch/job_options.h"
#include "launch/poll_set.h"
#include "launch/start_watch.h"

namespace rueda::launch {

// One thread.
class Agents {
 public:
  // Starts the agent of one host: here, through srun if it is a node of the allocation, or through ssh.
  Status start(const std::string& host, const RunOptions& options);
  // It has called by itself.
  void adopt(HostLink link) { links_.push_back(std::move(link)); }
  // The agent of this link has ended. The link is made anew, in its place.
  static Status start_again(HostLink& link, const RunOptions& options);

  struct Handlers {
    std::function<void(HostLink&, const AgentMessage&)> on_rank_message;
    std::function<void(const HostLink&, std::string_view)> on_errors;  // whole lines of its stderr
  };
  // is_held: the agents' messages stay in their pipes for now, and their silence is excused.
  void watch(PollSet& set, const Handlers& handlers, bool is_held, Nanos now);
  void read_the_rest(const Handlers& handlers);

  void broadcast(MessageType type, std::span<const std::byte> payload = {});
  void check_silence(Nanos now, Nanos timeout);  // timeout: of remote agents; 0 = none
  void excuse_silence(Nanos now);
  void reap();                // notes which of our children have ended, without waiting
  void abandon();             // no rank was started
  void abandon_idle();        // those that were not given the job
  void force_end(Nanos now);  // see HostLink
  void close(const std::string& why);

  [[nodiscard]] bool are_over() const;
  // Whether every agent of this machine has ended, so that none can clean up behind itself.
  [[nodiscard]] bool are_local_gone() const;
  [[nodiscard]] std::vector<AgentState> states() const;
  [[nodiscard]] std::vector<HostLink>& links() { return links_; }

 private:
  static Status begin(HostLink& link, const RunOptions& options);

  std::vector<HostLink> links_;  // in the order of start()
};

}  // namespace rueda::launch
