// What a launcher that serves the store tells ranks in init: one rank of the job has ended, so this init will
// never be complete. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "rueda/base/types.h"

namespace rueda::store {

// Its value is the first rank that ended, with the words of format_ended().
inline constexpr std::string_view kEndedKey = "ended";

struct EndedRank {
  Rank size = 0;  // of the launcher's job. A world of another size has other numbers
  Rank rank = -1;
  std::string how;  // "rank 1 on host b (pid 4711) exited with code 0"
  int pid = 0;      // of the process that the launcher started; 0: it could not be started
};

std::string format_ended(const EndedRank& ended);
std::optional<EndedRank> parse_ended(std::string_view text);  // empty if it is no such value

}  // namespace rueda::store
