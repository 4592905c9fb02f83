// When each peer was last heard of, and how far the clocks of two hosts are apart. Pure: time is passed
// as a value.
#pragma once

#include <optional>
#include <vector>

#include "rueda/base/clock.h"
#include "rueda/base/types.h"
#include "rueda/control/message_types.h"
#include "rueda/trace/clock_estimate.h"

namespace rueda::runtime {

// Of one exchange: a heartbeat that this rank sent, and its echo, which arrived now. Converts this rank's
// times to the clock of the rank that answered.
trace::ClockSample clock_of_asker(const control::Heartbeat& echo, Nanos now);

// The coordinator pings every rank; a rank answers. Each side notices when the other falls silent.
class Liveness {
 public:
  Liveness(Rank me, Rank world_size, Nanos timeout, Nanos now);

  void heard(Rank peer, Nanos now) { last_heard_[static_cast<size_t>(peer)] = now; }
  // It could not be heard, which is not the fault of its process.
  void excuse(Rank peer, Nanos now) { heard(peer, now); }
  // Whether the coordinator's next ping is due. True once per interval.
  bool take_due(Nanos now);
  [[nodiscard]] Nanos next_event() const { return next_; }
  // A peer that this rank watches and that has been silent for longer than the timeout.
  [[nodiscard]] std::optional<Rank> silent(Nanos now) const;
  [[nodiscard]] Nanos timeout() const { return timeout_; }

 private:
  Rank me_;
  Nanos timeout_;
  Nanos interval_;
  Nanos next_;
  std::vector<Nanos> last_heard_;
};

}  // namespace rueda::runtime
