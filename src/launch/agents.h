// The agents of a job, one per host that has ranks, as seen by the launcher. In a large job some are started
// by other agents (agent_tree.h); their links are like those of the others, but their bytes travel through
// the link of the agent that has started them.
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

// One thread. It stays where it is.
class Agents {
 public:
  using Say = std::function<void(const std::string&)>;
  // The agents of all hosts, except those of the first ones that have called by themselves. In an elastic job
  // none starts others. The options are borrowed; say: to the user.
  Status start_all(std::span<const HostSlots> hosts, const RunOptions& options, Say say);
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
  // What is known of a host of a tree, beside its link.
  struct TreePlace {
    int parent = -1;  // whose agent starts this one; -1: the launcher
    bool has_branches = false;
    std::string tried_by{}, tried_why{};  // the host that could not start it, and why
    std::string lost_with{};  // why it cannot be reached any more, if it was lost with another one
  };
  static Status begin(HostLink& link, const RunOptions& options);
  void announce(const HostLink& link) const;
  void read(HostLink& link, const Handlers& handlers);
  void on_message(HostLink& link, const AgentMessage& message, const Handlers& handlers);
  // branches
  [[nodiscard]] HostLink* parent_of(const HostLink& link);
  TreePlace& place_of(const HostLink& link);
  void begin_branches();
  void begin_branch(size_t host, HostLink& parent);
  Status on_branch_part(const HostLink& parent, std::span<const std::byte> payload, const Handlers& handlers);
  Status on_branch_ended(const HostLink& parent, std::span<const std::byte> payload);
  void start_here_instead(size_t host);
  void end_branches_of_lost();

  std::vector<HostLink> links_;    // in the order of start()
  std::vector<TreePlace> places_;  // [links] of start_all(), otherwise empty
  const RunOptions* options_ = nullptr;
  Say say_;
  bool is_starting_ = false;  // a branch that fails is started from here
};

}  // namespace rueda::launch
