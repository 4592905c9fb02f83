// Finds stragglers: ranks that keep the others waiting, also where each single wait is short. Every rank
// counts the time in which it takes part in a collective: it has asked for one, or one is under way. While
// most others take part in a collective of the world and a rank computes, that rank keeps them waiting,
// whether the collective is negotiated or of a learned plan, and whichever backend runs it. Ranks send their
// counts with each answer to a heartbeat, about once a second. If several ranks are late in turn between two
// answers, each is counted for less than it costs. Pure: events in (time included), sums out.
#pragma once

#include <cstddef>
#include <deque>
#include <vector>

#include "rueda/base/clock.h"
#include "rueda/base/types.h"
#include "rueda/control/facts.h"

namespace rueda::control {

class StragglerDetector {
 public:
  struct Wait {
    Rank rank = 0;     // for which the others waited
    Nanos waited = 0;  // most of the others, at least
  };
  struct Straggler {
    Rank rank = 0;
    double share = 0;  // of the window, in which most others waited for it
    Nanos window = 0;  // up to now
  };
  explicit StragglerDetector(Rank ranks) : last_(static_cast<size_t>(ranks)), newest_(last_.size()) {}

  // What a rank has answered to a heartbeat; also this rank, when it sends one.
  void on_participation(Rank from, const Participation& participation, Nanos now);
  // What was waited since this was asked last.
  std::vector<Wait> take();
  // For whom the others have waited for a tenth of the last 10 s or longer; most awaited first.
  [[nodiscard]] std::vector<Straggler> stragglers(Nanos now) const;

 private:
  struct Interval {
    Nanos length = 0;
    std::vector<Nanos> waited;  // by rank
  };
  void end_interval(Nanos now);
  [[nodiscard]] std::vector<Nanos> waits(Nanos length) const;

  std::vector<Participation> last_, newest_;  // by rank; at: 0 = none
  size_t fresh_ = 0;                          // ranks that have answered since the interval began
  Nanos began_ = 0;                           // the interval; 0: none has
  std::deque<Interval> recent_;               // 10 s of them, oldest first
  std::vector<Nanos> sums_;                   // by rank, since take(); empty: nothing
};

}  // namespace rueda::control
