#include "rueda/runtime/liveness.h"

#include <algorithm>
#include <utility>

namespace rueda::runtime {
namespace {

constexpr Nanos kMaxInterval = kSecond;

}  // namespace

Liveness::Liveness(const Hierarchy& hierarchy, Nanos timeout, Nanos now)
    : hierarchy_(hierarchy),
      timeout_(timeout),
      interval_(std::min(kMaxInterval, timeout / 4)),
      next_(now),
      last_heard_(hierarchy.parents().size(), now) {}

bool Liveness::take_due(Nanos now) {
  if (now < next_) return false;
  // If this process was suspended, it has heard of no peer meanwhile. That is not the fault of the peers.
  if (now - next_ > timeout_ / 2) std::fill(last_heard_.begin(), last_heard_.end(), now);
  next_ = now + interval_;
  return true;
}

std::optional<Rank> Liveness::silent(Nanos now) const {
  if (!hierarchy_.is_root()) {
    const Rank parent = hierarchy_.parent();
    return silence(parent, now) > timeout_ ? std::optional(parent) : std::nullopt;
  }
  for (Rank peer = 0; std::cmp_less(peer, last_heard_.size()); ++peer) {
    if (peer == hierarchy_.me() || silence(peer, now) <= timeout_) continue;
    const Rank parent = hierarchy_.parent_of(peer);
    if (parent == hierarchy_.me() || !is_away(parent, now)) return peer;
  }
  return std::nullopt;
}

// The four time stamps of NTP (RFC 5905, section 8), as differences, which cannot overflow.
trace::ClockSample clock_of_asker(const control::Heartbeat& echo, Nanos now) {
  const Nanos there = echo.echo_received - echo.echo_sent, back = echo.sent - now;
  return {.at = echo.echo_sent + (now - echo.echo_sent) / 2,
          .offset = (there + back) / 2,
          .round_trip = (now - echo.echo_sent) - (echo.sent - echo.echo_received)};
}

}  // namespace rueda::runtime
