// For how long the host of a peer has acknowledged nothing over TCP, and when that is too long. Pure: time is
// passed as a value.
#pragma once

#include <algorithm>

#include "rueda/base/clock.h"

namespace rueda::transport {

// How often the kernel tries to reach a host that acknowledges nothing, where `peer_timeout` is the longest
// outage that must be survived.
struct Tries {
  // Between two of them at most. Left alone, Linux doubles the time between two up to 2 minutes, and a
  // connection would notice the end of an outage late. Linux gives up after some nine of the longest gaps,
  // so they must not be shorter than this.
  Nanos gap = 0;
  // Without data to send: the first after so long, and then one after the other. The kernel gives up after
  // these, which is later than give_up_after().
  int keep_alive_s = 0;
  int keep_alive_count = 8;
};
inline Tries tries_for(Nanos peer_timeout) {
  const Nanos gap = std::clamp(peer_timeout / 6, kSecond, 120 * kSecond);
  return {.gap = gap, .keep_alive_s = static_cast<int>((gap + kSecond - 1) / kSecond)};
}

// A host is lost if it has acknowledged nothing for so long. In that time the kernel has tried once more
// after an outage of peer_timeout.
inline Nanos give_up_after(Nanos peer_timeout) { return peer_timeout + tries_for(peer_timeout).gap; }

class HostSilence {
 public:
  // A look at a connection. is_waiting: something was sent that has not been acknowledged. since_last: since
  // the last acknowledgement.
  void look(bool is_waiting, Nanos since_last, Nanos now) {
    if (!is_waiting) return void(age_ = since_ = 0);
    // The last acknowledgement may be older than a long idle time.
    if (since_ == 0) since_ = now;
    age_ = std::min(since_last, now - since_);
  }
  // At the last look.
  [[nodiscard]] Nanos age() const { return age_; }

 private:
  Nanos since_ = 0;  // when bytes without an acknowledgement were first seen; 0: there are none
  Nanos age_ = 0;
};

}  // namespace rueda::transport
