// Time as a value. Pure code takes Nanos; only effects read a clock.
#pragma once

#include <cstdint>

namespace rueda {

using Nanos = int64_t;

inline constexpr Nanos kMicrosecond = 1'000;
inline constexpr Nanos kMillisecond = 1'000'000;
inline constexpr Nanos kSecond = 1'000'000'000;

// The longest duration that a setting means, 146 years: it can be added to any point in time.
inline constexpr Nanos kLongestTime = INT64_MAX / 2;

// A setting in nanoseconds, `value` times `unit`: at least 0 and at most kLongestTime.
Nanos nanos(double value, Nanos unit);

Nanos monotonic_now();       // CLOCK_MONOTONIC: shared by the ranks of a host
int64_t epoch_micros_now();  // CLOCK_REALTIME in microseconds since 1970

// Makes the descriptor from timerfd_create(CLOCK_MONOTONIC) readable from `when` on. This replaces the time
// that was set before; 0 = never.
void set_timer(int timer_fd, Nanos when);

// A point in time after which a wait gives up. Every wait has one.
class Deadline {
 public:
  static Deadline after(Nanos duration) { return Deadline(monotonic_now() + duration); }
  static Deadline at(Nanos when) { return Deadline(when); }

  [[nodiscard]] Nanos when() const { return when_; }
  [[nodiscard]] bool is_past(Nanos now) const { return now >= when_; }
  [[nodiscard]] bool is_past() const { return is_past(monotonic_now()); }
  // The remaining time for poll(2): in milliseconds, rounded up, never negative.
  [[nodiscard]] int timeout_ms() const;

 private:
  explicit Deadline(Nanos when) : when_(when) {}
  Nanos when_;
};

}  // namespace rueda
