// The tiers of switches of a network under virtual time: what leaves the hosts of a switch shares its uplink,
// and so does what comes to them. Like links, an uplink carries messages in the order in which they come, and
// what it cannot take at that moment waits in the switch and holds up nothing that goes elsewhere. Pure.
//
// Example: two hosts of 1 GB/s at each of two switches, with uplinks of 0.5 GB/s. A message of 1 MB to the
// other switch takes 2000 us, and two from different hosts at once take 4000 us. To its neighbour one takes
// 1000 us.
#pragma once

#include <cstdint>
#include <vector>

#include "rueda/schedule/network.h"

namespace rueda::schedule {

class Uplinks {
 public:
  explicit Uplinks(std::vector<Tier> tiers);
  [[nodiscard]] bool are_between(int32_t one_host, int32_t other_host) const {
    return !tiers_.empty() && tiers_.front().switch_of[one_host] != tiers_.front().switch_of[other_host];
  }
  // Of a message whose first byte leaves its host at one time, and its last byte at another: when the last
  // byte is through. [us]
  double pass(int32_t from_host, int32_t to_host, double bytes, double first_us, double last_us);
  // [uplinks, up and down apart] how long each has been busy
  [[nodiscard]] const std::vector<double>& busy_us() const { return busy_us_; }

 private:
  std::vector<Tier> tiers_;
  std::vector<size_t> begin_;  // [tier] of its uplinks in the lists below
  // [begin + 2 * switch + (0: up, 1: down)] free: if bytes had come at once, so that messages of slow ports
  // share a fast uplink
  std::vector<double> free_us_, busy_us_;
};

}  // namespace rueda::schedule
