#include "rueda/runtime/liveness.h"

#include <algorithm>

namespace rueda::runtime {
namespace {

constexpr Nanos kMaxInterval = kSecond;

}  // namespace

Liveness::Liveness(Rank me, Rank world_size, Nanos timeout, Nanos now)
    : me_(me),
      timeout_(timeout),
      interval_(std::min(kMaxInterval, timeout / 4)),
      next_(now),
      last_heard_(static_cast<size_t>(world_size), now),
      offset_(static_cast<size_t>(world_size), 0),
      round_trip_(static_cast<size_t>(world_size), 0) {}

bool Liveness::take_due(Nanos now) {
  if (now < next_) return false;
  // If this process was suspended, it has heard of no peer meanwhile. That is not the fault of the peers.
  if (now - next_ > timeout_ / 2) std::fill(last_heard_.begin(), last_heard_.end(), now);
  next_ = now + interval_;
  return true;
}

std::optional<Rank> Liveness::silent(Nanos now) const {
  for (Rank peer = 0; peer < static_cast<Rank>(last_heard_.size()); ++peer) {
    if (peer == me_ || (me_ != 0 && peer != 0)) continue;
    if (now - last_heard_[static_cast<size_t>(peer)] > timeout_) return peer;
  }
  return std::nullopt;
}

void Liveness::on_answer(Rank peer, const control::Heartbeat& answer, Nanos now) {
  if (answer.echo_sent == 0) return;
  const auto p = static_cast<size_t>(peer);
  const Nanos round_trip = (now - answer.echo_sent) - (answer.sent - answer.echo_received);
  if (round_trip_[p] != 0 && round_trip > round_trip_[p]) return;
  round_trip_[p] = round_trip;
  offset_[p] = ((answer.echo_received - answer.echo_sent) + (answer.sent - now)) / 2;
}

}  // namespace rueda::runtime
