// The boards of a host's processes in an elastic job, as its agent keeps them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launch/agent_messages.h"
#include "rueda/base/clock.h"
#include "rueda/status/elastic_board.h"

namespace rueda::launch {

inline constexpr Nanos kAnswerTime = 20 * kMillisecond;  // from a commit to the answer; usually microseconds

// One thread.
class Boards {
 public:
  // Makes the board of a process, and returns the variable that tells the process about it.
  Result<Variables> make(int32_t number, const std::string& folder);
  void forget(int32_t number) { boards_.erase(number); }

  // Writes what the launcher says. Returns what it is to be told at once.
  std::optional<BoardReport> write(const ViewChangeFor& change);
  // The answers to proposals that have come since. A process that holds the proposed commit and does not
  // answer had gone on before it could see the proposal. It answers no more, because it needs those that wait
  // there, so this answers for it: too late. A process that was only slow to answer then waits for nothing,
  // and sees the next proposal.
  std::vector<BoardReport> answers(Nanos now);
  [[nodiscard]] bool are_awaited() const;  // answers
  // The processes that were told by SIGTERM to leave. Each is returned once.
  std::vector<int32_t> leaving();

 private:
  struct Board {
    status::ElasticBoard board;
    std::optional<status::ViewChange> unanswered{};  // the proposal
    Nanos reached = 0;                               // when the process was first seen at its commit
    bool is_leaving = false;                         // and it was said
  };
  std::map<int32_t, Board> boards_;
};

}  // namespace rueda::launch
