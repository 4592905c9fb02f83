// How far the clock of another host is from ours, from exchanges of time stamps. Pure: time is passed as a
// value.
//
// Of an exchange it is known that the true offset lies within half its round trip. Only the fastest exchange
// of each window counts (Cristian 1989; NTP's clock filter). Between two of them the offset is interpolated:
// clocks of real machines drift by 10 to 50 ppm, and this drift changes slowly. Before the first and after
// the last it is extrapolated with the drift that was measured.
#pragma once

#include <cstddef>
#include <vector>

#include "rueda/base/clock.h"

namespace rueda::trace {

struct ClockSample {
  Nanos at = 0;          // on the clock to be converted, in the middle of the exchange
  Nanos offset = 0;      // add it to get the time on the clock of reference
  Nanos round_trip = 0;  // of the messages, without the time that the other side took to answer
};

struct ClockOffset {
  Nanos offset = 0;
  Nanos bound = 0;  // the truth is within offset +- bound, if the drift changes by less than kMaxWander
};

class ClockEstimate {
 public:
  static constexpr Nanos kWindow = 10 * kSecond;
  static constexpr double kMaxDrift = 200e-6;   // of two quartz clocks, and of NTP slewing a clock
  static constexpr double kMaxWander = 2e-6;    // change of the drift from one window to the next
  static constexpr size_t kSettleReach = 60;    // windows before and after a busy one
  static constexpr size_t kMaxWindows = 4'096;  // 11 hours; older ones are thinned out

  // In the order of their times, as far as possible.
  void add(const ClockSample& sample);
  [[nodiscard]] bool is_empty() const { return best_.empty(); }
  // No more will be added. A window in which the network was busy takes what two quiet ones beside it say, if
  // that is more exact: its own exchanges may have waited behind data for long.
  void settle();
  // {0, 0} while it is empty.
  [[nodiscard]] ClockOffset at(Nanos when) const;

 private:
  [[nodiscard]] static ClockOffset interpolate(const ClockSample& before, const ClockSample& after,
                                               Nanos when);
  // From the sample at `end`; inwards: 1 at the first, -1 at the last.
  [[nodiscard]] ClockOffset extrapolate(size_t end, int inwards, Nanos when) const;

  std::vector<ClockSample> best_;  // of each window, in order
};

}  // namespace rueda::trace
