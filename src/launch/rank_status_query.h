// The agent's end of `rueda status`: asks the processes of its ranks all at once, without blocking the loop.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "launch/agent_messages.h"
#include "launch/poll_set.h"
#include "rueda/base/unique_fd.h"

namespace rueda::launch {

struct RankHere {
  int32_t rank = 0;
  pid_t pid = 0;  // 0: it was not started yet
  bool has_ended = false;
};

// One thread.
class RankStatusQuery {
 public:
  // folder: in which the ranks have their sockets. A rank's processes are those that descend from it.
  RankStatusQuery(Question question, const std::string& folder, std::span<const RankHere> ranks, Nanos now);

  void watch(PollSet& set);
  [[nodiscard]] bool is_done(Nanos now) const;
  [[nodiscard]] Nanos until() const { return until_; }
  // The payload of kAnswer. Processes that have not answered are named.
  [[nodiscard]] Bytes answer() const;

 private:
  struct Asked {
    status::ProcessAnswer answer;
    UniqueFd fd{};  // open: its answer has not arrived as a whole
  };
  void ask(const std::string& socket, int pid, int32_t rank);
  void read_from(Asked& asked);

  Question question_;
  Nanos until_;
  std::vector<Asked> asked_;
  size_t bytes_ = 0;
};

}  // namespace rueda::launch
