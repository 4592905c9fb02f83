// What a broken data channel means, as the coordinator sees it: a rank was lost, or the connection between
// two living ranks broke. Pure: time is passed as a value.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "rueda/base/clock.h"
#include "rueda/base/types.h"

namespace rueda::runtime {

// How long a suspect has to answer. A dead process is noticed sooner, because its control channel ends.
inline constexpr Nanos kAnswerWait = kSecond;

class Suspicions {
 public:
  struct Finding {
    Rank reporter = -1, suspect = -1;
    bool is_lost = false;  // false: both ranks live, and the connection between them broke
    std::string why;       // of the broken channel
  };

  // The reporter lives and has lost its channel to the suspect. The suspect must now be asked for a
  // sign of life.
  void report(Rank reporter, Rank suspect, std::string why, Nanos now);
  // The rank has answered a heartbeat that was sent at asked_at.
  void answered(Rank rank, Nanos asked_at);
  [[nodiscard]] std::optional<Finding> judge(Nanos now) const;
  [[nodiscard]] bool is_empty() const { return open_.empty(); }
  [[nodiscard]] Nanos next_event() const { return open_.front().since + kAnswerWait; }  // unless empty

 private:
  struct Suspicion {
    Rank reporter, suspect;
    std::string why;
    Nanos since;
    bool is_alive = false;
  };
  std::vector<Suspicion> open_;  // oldest first
};

}  // namespace rueda::runtime
