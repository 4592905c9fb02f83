// Which links between hosts are slow, from what the network stacks of all ranks counted. Pure.
//
// The speed of a link is the bytes that it moved divided by the time for which it was busy, so a link that
// waits for a late rank is not slow. A link is slow if it does less than half of what the median of the
// others does. Where all links are equally slow, none is.
//
// Both ends of a link measure its speed, and both can only measure too little: the sender because
// acknowledgements come late, the receiver because its process waits for a core. So the higher one counts.
//
// Example: three hosts. Each of the six links (a direction of a pair is a link) moves 40 MiB, and is busy for
// 1 s: 40 MiB/s. If the link from host 2 to host 0 is busy for 10 s, it does 4 MiB/s, less than half of 40,
// and host 2's other link does 40: the pair is slow, in the direction from 2 to 0. If both links from host 2
// are busy for 10 s, all that host 2 sends is slow. A link that is busy for 2 s by the sender's count, 20
// MiB/s, but on which 30 MiB arrived in 0.75 s while the receiver waited, 40 MiB/s, is not slow.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "rueda/base/clock.h"
#include "rueda/base/types.h"

namespace rueda::timeline {

// What one end has sent to the other. The sender counts the first three, the receiver the next two.
struct LinkTotal {
  int64_t bytes = 0;
  Nanos busy = 0;
  int64_t pauses = 0;         // how often it ran out of bytes to send; 0: not known
  int64_t awaited_bytes = 0;  // which arrived while the receiver waited for the rest of a message
  Nanos awaited = 0;          // for so long it did

  LinkTotal& operator+=(const LinkTotal& more);
};
// What was counted from one look to a later one.
LinkTotal operator-(const LinkTotal& later, const LinkTotal& before);
// What a look between these two would have seen if it had come evenly. part: of the time between them.
LinkTotal between(const LinkTotal& before, const LinkTotal& after, double part);

// An end is a rank, or the first rank of a host: the caller decides. (from, to)
using LinkTotals = std::map<std::pair<Rank, Rank>, LinkTotal>;

// Bytes per nanosecond (GB/s); 0: too little was sent to know.
double speed_of(const LinkTotal& total);

struct SlowLink {
  Rank end = 0;
  Rank other = -1;     // -1: all links of this end
  bool sends = false;  // from `end`; to `other`, if there is one
  bool receives = false;
  double speed = 0;  // of the slower direction, bytes per nanosecond
  double usual = 0;  // of the median of the others
};
// The same for both directions of a pair.
std::pair<Rank, Rank> ends_of(const SlowLink& link);

// On a busy machine a link that is as fast as the others does a third of them for some seconds, but not a
// quarter, and not for long. So what was slow for a part of a job is certain if it does less than this of
// what is usual, or lasts for so long.
inline constexpr double kClearlySlow = 0.25;
inline constexpr Nanos kIsSlowFor = 30 * kSecond;

// If only one direction of a pair is slow, `end` is the one that sends.
std::vector<SlowLink> find_slow_links(const LinkTotals& totals);

// The fastest connection of each end whose speed is known: what its port can do.
std::map<Rank, double> fastest_out(const LinkTotals& totals);
std::map<Rank, double> fastest_in(const LinkTotals& totals);

}  // namespace rueda::timeline
