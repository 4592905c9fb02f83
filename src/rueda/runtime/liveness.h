// When each peer was last heard of, and how far the clocks of two hosts are apart. Pure: time is passed
// as a value.
#pragma once

#include <optional>
#include <vector>

#include "rueda/base/clock.h"
#include "rueda/base/types.h"
#include "rueda/control/message_types.h"
#include "rueda/runtime/hierarchy.h"
#include "rueda/trace/clock_estimate.h"

namespace rueda::runtime {

// Of one exchange: a heartbeat that this rank sent, and its echo, which arrived now. Converts this rank's
// times to the clock of the rank that answered.
trace::ClockSample clock_of_asker(const control::Heartbeat& echo, Nanos now);

// A parent pings its children; a child answers. A rank notices when its parent falls silent, and the root
// when any rank does.
class Liveness {
 public:
  Liveness(const Hierarchy& hierarchy, Nanos timeout, Nanos now);

  void heard(Rank peer, Nanos now) { last_heard_[static_cast<size_t>(peer)] = now; }
  // It could not be heard, which is not the fault of its process.
  void excuse(Rank peer, Nanos now) { heard(peer, now); }
  // Whether the next ping is due. True once per interval.
  bool take_due(Nanos now);
  // The parent has pinged this rank, which pings its children now. They answer all at about the same time, so
  // the next ping is due a little later than the parent's.
  void pinged(Nanos now) { next_ = now + interval_ + interval_ / 2; }
  // For so long nothing was heard.
  [[nodiscard]] Nanos silence(Rank peer, Nanos now) const {
    return now - last_heard_[static_cast<size_t>(peer)];
  }
  // Too long for a rank that lives and is pinged; too short for a verdict.
  [[nodiscard]] bool is_away(Rank peer, Nanos now) const { return silence(peer, now) > 2 * interval_; }
  [[nodiscard]] Nanos next_event() const { return next_; }
  // A peer that this rank watches and that has been silent for longer than the timeout. The silence of a
  // leader is not that of the ranks below it.
  [[nodiscard]] std::optional<Rank> silent(Nanos now) const;
  [[nodiscard]] Nanos timeout() const { return timeout_; }

 private:
  const Hierarchy& hierarchy_;
  Nanos timeout_;
  Nanos interval_;
  Nanos next_;
  std::vector<Nanos> last_heard_;
};

}  // namespace rueda::runtime
