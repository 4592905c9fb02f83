#include "rueda/trace/clock_estimate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>

namespace rueda::trace::clock_estimate_test {
namespace {

// Two clocks: true_offset(t) is what must be added to a time of the first to get that of the second.
struct Clocks {
  double offset = 50e6;   // nanoseconds
  double drift = 100e-6;  // at the beginning
  double wander = 0;      // how much the drift swings, with a period of ten minutes

  [[nodiscard]] double true_offset(Nanos when) const {
    const auto t = static_cast<double>(when);
    const double turn = 2 * 3.14159265358979 / 600e9;
    return offset + drift * t + wander * (1 - std::cos(turn * t)) / turn;
  }
};

constexpr Nanos kStart = 1'000 * kSecond;

// One exchange a second for ten minutes. Each way takes at least `least`, and mostly much longer on one way.
ClockEstimate ten_minutes(const Clocks& clocks, Nanos least, std::mt19937_64& random,
                          Nanos until = 600 * kSecond) {
  ClockEstimate estimate;
  std::exponential_distribution<double> delay(1.0 / 300e3);  // 300 us on average
  for (Nanos t = 0; t < until; t += kSecond) {
    const Nanos sent = kStart + t;
    const auto there = least + static_cast<Nanos>(delay(random)),
               back = least + static_cast<Nanos>(delay(random));
    const Nanos received = sent + there, now = received + back;
    const auto at_other = static_cast<Nanos>(std::llround(received + clocks.true_offset(received - kStart)));
    estimate.add({.at = sent + (now - sent) / 2,
                  .offset = at_other - (sent + (now - sent) / 2),
                  .round_trip = now - sent});
  }
  return estimate;
}

uint64_t seed() {
  const uint64_t made = std::random_device{}();
  std::printf("seed %lu\n", made);
  return made;
}

TEST(ClockEstimate, an_offset_of_50_ms_that_drifts_by_100_ppm_is_known_within_the_bound) {
  std::mt19937_64 random(seed());
  for (const double wander : {0.0, 10e-6}) {
    const Clocks clocks{.wander = wander};
    const ClockEstimate estimate = ten_minutes(clocks, 20 * kMicrosecond, random);
    double worst = 0, widest = 0;
    for (Nanos t = 0; t < 600 * kSecond; t += kSecond / 7) {
      const ClockOffset found = estimate.at(kStart + t);
      const double error = std::abs(static_cast<double>(found.offset) - clocks.true_offset(t));
      EXPECT_LE(error, static_cast<double>(found.bound)) << t << " with a wander of " << wander;
      worst = std::max(worst, error);
      widest = std::max(widest, static_cast<double>(found.bound));
    }
    EXPECT_LT(widest, 2e6) << "a bound that says nothing";
    EXPECT_LT(worst, 1e6) << "an offset without the drift would be off by 60 ms";
  }
}

TEST(ClockEstimate, what_comes_after_the_last_exchange_is_within_the_bound_too) {
  std::mt19937_64 random(seed());
  const Clocks clocks;
  const ClockEstimate estimate = ten_minutes(clocks, 20 * kMicrosecond, random, 60 * kSecond);
  Nanos before = 0;
  for (Nanos t = 60 * kSecond; t < 120 * kSecond; t += kSecond) {
    const ClockOffset found = estimate.at(kStart + t);
    EXPECT_LE(std::abs(static_cast<double>(found.offset) - clocks.true_offset(t)),
              static_cast<double>(found.bound));
    EXPECT_GT(found.bound, before) << "the older, the less is known";
    before = found.bound;
  }
}

TEST(ClockEstimate, a_single_exchange_is_half_its_round_trip_wrong_at_most) {
  ClockEstimate estimate;
  EXPECT_TRUE(estimate.is_empty());
  EXPECT_EQ(estimate.at(5).offset, 0);
  estimate.add({.at = kStart, .offset = 1'000, .round_trip = 40});
  EXPECT_EQ(estimate.at(kStart).offset, 1'000);
  EXPECT_EQ(estimate.at(kStart).bound, 20);
  EXPECT_EQ(estimate.at(kStart + kSecond).bound, 20 + 200 * kMicrosecond) << "the drift is not known";
}

TEST(ClockEstimate, the_fastest_exchange_of_a_window_counts) {
  ClockEstimate estimate;
  estimate.add({.at = kStart, .offset = 1'000, .round_trip = 400});
  estimate.add({.at = kStart + kSecond, .offset = 1'300, .round_trip = 10});
  estimate.add({.at = kStart + 2 * kSecond, .offset = 900, .round_trip = 4'000});
  EXPECT_EQ(estimate.at(kStart + kSecond).offset, 1'300);
  EXPECT_EQ(estimate.at(kStart + kSecond).bound, 5);
  estimate.add({.at = kStart + 3 * kSecond, .offset = 0, .round_trip = -1});  // a clock was set
  EXPECT_EQ(estimate.at(kStart + kSecond).offset, 1'300);
}

TEST(ClockEstimate, windows_of_a_busy_network_take_what_quiet_ones_say) {
  std::mt19937_64 random(seed());
  const Clocks clocks{.wander = 10e-6};
  std::uniform_real_distribution<double> queue(20e6, 100e6);
  ClockEstimate estimate;
  for (Nanos t = 0; t <= 600 * kSecond; t += kSecond) {
    const bool is_quiet = t % (120 * kSecond) == 0;
    const auto there = static_cast<Nanos>(is_quiet ? 50e3 : queue(random)), back = 50 * kMicrosecond;
    const Nanos middle = kStart + t + (there + back) / 2;
    const auto at_other =
        static_cast<Nanos>(std::llround(kStart + t + there + clocks.true_offset(t + there)));
    estimate.add({.at = middle, .offset = at_other - middle, .round_trip = there + back});
  }
  const auto widest = [&] {
    Nanos bound = 0;
    for (Nanos t = 0; t < 600 * kSecond; t += kSecond / 7) {
      const ClockOffset found = estimate.at(kStart + t);
      EXPECT_LE(std::abs(static_cast<double>(found.offset) - clocks.true_offset(t)),
                static_cast<double>(found.bound))
          << t;
      bound = std::max(bound, found.bound);
    }
    return bound;
  };
  EXPECT_GT(widest(), 10 * kMillisecond);
  estimate.settle();
  EXPECT_LT(widest(), kMillisecond);
}

TEST(ClockEstimate, a_job_of_many_days_takes_bounded_memory_and_stays_right) {
  ClockEstimate estimate;
  const Clocks clocks{.drift = 20e-6};
  const Nanos end = 5 * 24 * 3'600 * kSecond;
  for (Nanos t = 0; t < end; t += ClockEstimate::kWindow)
    estimate.add({.at = kStart + t,
                  .offset = static_cast<Nanos>(std::llround(clocks.true_offset(t))),
                  .round_trip = 100});
  for (Nanos t = 0; t < end; t += 997 * kSecond) {
    const ClockOffset found = estimate.at(kStart + t);
    EXPECT_LE(std::abs(static_cast<double>(found.offset) - clocks.true_offset(t)),
              static_cast<double>(found.bound) + 1);
  }
}

}  // namespace
}  // namespace rueda::trace::clock_estimate_test
