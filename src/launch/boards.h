// The boards of a host's processes in an elastic job, as its agent keeps them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launch/agent_messages.h"
#include "rueda/status/elastic_board.h"

namespace rueda::launch {

// One thread.
class Boards {
 public:
  // Makes the board of a process, and returns the variable that tells the process about it.
  Result<Variables> make(int32_t number, const std::string& folder);
  void forget(int32_t number) { boards_.erase(number); }

  // Writes what the launcher says. Returns what it is to be told at once.
  std::optional<BoardReport> write(const ViewChangeFor& change);
  // The answers to proposals that have come since.
  std::vector<BoardReport> answers();
  [[nodiscard]] bool are_awaited() const;  // answers

 private:
  struct Board {
    status::ElasticBoard board;
    std::optional<uint16_t> unanswered{};  // the round that is proposed on it
  };
  std::map<int32_t, Board> boards_;
};

}  // namespace rueda::launch
