// On which link a transfer waited for bytes while a rank was blocked in it. Pure.
//
// A rank in a transfer has a message on the way to it, or waits for a rank that has not sent yet. That rank
// may itself wait for a message of another one: in a ring, one slow link holds up everybody. So the search
// goes from rank to rank to the link on which bytes were moving at that moment. What no message explains was
// spent in memory: adding, copying, and what ranks of one host exchange without messages.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "timeline/attribution.h"

namespace rueda::timeline {

// Of one rank, on the common clock.
struct MessageTimes {
  Rank peer = 0;
  bool is_sent = false;
  Nanos posted = 0;  // of what is received: from then on the rank was ready for it
  Nanos began = 0;   // when the sender began
  Nanos ended = 0;
};

class LinkTimes {
 public:
  using Link = std::pair<Rank, Rank>;  // from, to

  // In any order.
  void add(Rank rank, const std::vector<MessageTimes>& messages);
  // Divides the intervals, in which the rank was blocked, among links. Returns what is left.
  Nanos divide(Rank rank, const std::vector<Interval>& blocked, std::map<Link, Nanos>& links) const;

 private:
  enum class What : uint8_t { kNothing, kSending, kAwaiting, kArriving };
  struct Segment {  // what went on until then
    Nanos until = 0;
    What what = What::kNothing;
    Rank peer = -1;
  };
  class Sweep;
  Nanos follow(Rank rank, Interval during, int depth, std::map<Link, Nanos>& links) const;

  std::map<Rank, std::vector<Segment>> segments_;  // one after the other
};

}  // namespace rueda::timeline
