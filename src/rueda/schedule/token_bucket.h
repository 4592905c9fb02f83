// What lets bytes through at one rate, and after a pause some at a higher one: Linux's tbf, and the network
// credit of machines in clouds. It begins full. Without a burst it is a port of one rate. Pure.
//
// Example: 0.125 GB/s (1 Gbit/s), a burst of 1 MB at 1.25 GB/s. A message of 1 MB that comes at 0 takes 800
// us, and 10 % of the credit is back by then. A second one at once takes 80 us for 0.1 MB (0.11 MB, since
// credit comes back meanwhile), and the rest 7111 us. 8000 us later the bucket is full again.
#pragma once

namespace rueda::schedule {

class TokenBucket {
 public:
  // Gigabytes per second; peak: at which the burst goes, above the rate where there is a burst.
  TokenBucket(double rate_gbps, double burst_bytes, double peak_gbps)
      : rate_(rate_gbps * 1e3), peak_(peak_gbps * 1e3), burst_(burst_bytes), credit_(burst_bytes) {}
  // When the last byte of a message is through whose first one comes at that time, which is not before the
  // message before it is through.
  double pass(double bytes, double at_us);

 private:
  double rate_, peak_;     // bytes per microsecond
  double burst_, credit_;  // bytes
  double known_us_ = 0;    // to when credit_ belongs
};

}  // namespace rueda::schedule
