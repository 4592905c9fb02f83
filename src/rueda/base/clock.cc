#include "rueda/base/clock.h"

#include <sys/timerfd.h>

#include <algorithm>
#include <climits>
#include <ctime>

namespace rueda {

Nanos nanos(double value, Nanos unit) {
  const double exact = value * static_cast<double>(unit);
  if (!(exact > 0)) return 0;  // not a number, too
  return exact < static_cast<double>(kLongestTime) ? static_cast<Nanos>(exact) : kLongestTime;
}

Nanos monotonic_now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * kSecond + now.tv_nsec;
}

int64_t epoch_micros_now() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec * 1'000'000 + now.tv_nsec / 1'000;
}

int Deadline::timeout_ms() const {
  const Nanos left = when_ - monotonic_now();
  if (left <= 0) return 0;
  return static_cast<int>(std::min<Nanos>((left + kMillisecond - 1) / kMillisecond, INT_MAX));
}

void set_timer(int timer_fd, Nanos when) {
  itimerspec spec{};
  spec.it_value.tv_sec = when / kSecond;
  spec.it_value.tv_nsec = when % kSecond;
  timerfd_settime(timer_fd, TFD_TIMER_ABSTIME, &spec, nullptr);
}

}  // namespace rueda
