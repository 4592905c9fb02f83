// The agents of other hosts that this agent has started: it keeps their ssh, and carries bytes between them
// and the launcher. It understands nothing of what they say.
#pragma once

#include <sys/types.h>

#include <deque>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "launch/branch_messages.h"
#include "launch/out_queue.h"
#include "launch/poll_set.h"

namespace rueda::launch {

// One thread.
class Branches {
 public:
  // send: to the launcher.
  explicit Branches(SendMessage send) : send_(std::move(send)) {}

  // Of the launcher: kBranch, kToBranch or kEndBranch.
  Status on_message(const AgentMessage& message);
  // Of the launcher: kForAll. Returns the message inside, which is for this agent as well.
  Result<AgentMessage> pass_on(const AgentMessage& message);
  // may_read: otherwise what the branches say stays in their pipes.
  void watch(PollSet& set, bool may_read);
  // Returns whether it was the ssh of a branch.
  bool on_reaped(pid_t pid, int wait_status);
  // The launcher is lost: the branches see end of file, and end their ranks as we do.
  void close();
  [[nodiscard]] bool are_over() const;
  [[nodiscard]] std::vector<pid_t> running() const;

 private:
  struct Branch {
    int32_t number = 0;
    AgentProcess process;
    OutQueue queue;
    std::optional<int> wait_status{};
    bool is_over = false;
  };
  Status start(std::span<const std::byte> payload);
  void read_from(Branch& branch, Stream stream);
  void look_for_end(Branch& branch);
  Branch* find(int32_t number);

  SendMessage send_;
  std::deque<Branch> branches_;  // references stay valid while branches are added
};

}  // namespace rueda::launch
