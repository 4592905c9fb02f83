// Which outages of the network a connection survives, with a kernel and a clock of the test's own.
#include "rueda/transport/host_silence.h"

#include <gtest/gtest.h>

#include <optional>

namespace rueda::transport::host_silence_test {
namespace {

constexpr Nanos kBegin = 1000 * kSecond, kTimeout = 30 * kSecond;
constexpr Nanos kFirstGap = 200 * kMillisecond;

// A connection with data to send whose network is down from kBegin on. The kernel doubles the gap between two
// tries up to `longest_gap`, and the connection is looked at once a second. Returns when it is given up;
// empty: it has survived.
std::optional<Nanos> given_up_after_outage_of(Nanos outage, Nanos phase, Nanos longest_gap) {
  HostSilence silence;
  Nanos try_at = kBegin + kFirstGap, gap = kFirstGap, acknowledged = kBegin;
  for (Nanos now = kBegin + phase; now < kBegin + 4 * kTimeout; now += kSecond) {
    for (; try_at <= now; try_at += gap = std::min(2 * gap, longest_gap))
      if (try_at >= kBegin + outage) acknowledged = try_at;
    const bool is_waiting = acknowledged == kBegin;
    silence.look(is_waiting, now - acknowledged, now);
    if (!is_waiting) return std::nullopt;
    if (silence.age() > give_up_after(kTimeout)) return now - kBegin;
  }
  ADD_FAILURE() << "it neither survives nor is given up";
  return std::nullopt;
}

TEST(HostSilence, every_outage_shorter_than_the_timeout_is_survived) {
  for (Nanos outage = kSecond / 2; outage < kTimeout; outage += kSecond / 2)
    for (const Nanos phase : {Nanos{0}, kSecond / 3, kSecond - 1})
      EXPECT_EQ(given_up_after_outage_of(outage, phase, tries_for(kTimeout).gap), std::nullopt)
          << outage << " " << phase;
}

TEST(HostSilence, a_host_that_never_comes_back_is_given_up_soon_after_the_timeout) {
  const auto given_up = given_up_after_outage_of(10 * kTimeout, 0, tries_for(kTimeout).gap);
  ASSERT_TRUE(given_up);
  EXPECT_GT(*given_up, kTimeout);
  EXPECT_LE(*given_up, kTimeout + tries_for(kTimeout).gap + 2 * kSecond);
}

// Before Linux 6.15 the gap has no other limit than two minutes.
TEST(HostSilence, an_older_kernel_survives_outages_of_five_sixths_of_the_timeout) {
  for (Nanos outage = kSecond / 2; outage < kTimeout * 5 / 6; outage += kSecond / 2)
    EXPECT_EQ(given_up_after_outage_of(outage, 0, 120 * kSecond), std::nullopt) << outage;
}

TEST(HostSilence, the_end_of_a_long_idle_time_is_no_silence) {
  HostSilence silence;
  silence.look(false, 500 * kSecond, kBegin);
  silence.look(true, 500 * kSecond, kBegin + kSecond);
  EXPECT_EQ(silence.age(), 0);
  silence.look(true, 501 * kSecond, kBegin + 2 * kSecond);
  EXPECT_EQ(silence.age(), kSecond);
  silence.look(false, 0, kBegin + 3 * kSecond);
  EXPECT_EQ(silence.age(), 0);
}

TEST(HostSilence, a_busy_connection_is_not_silent) {
  HostSilence silence;
  for (Nanos now = kBegin; now < kBegin + 100 * kSecond; now += kSecond) {
    silence.look(true, 3 * kMillisecond, now);
    EXPECT_LE(silence.age(), 3 * kMillisecond);
  }
}

// Linux gives up after tcp_retries2 (15) tries, of which some nine come after the longest gap.
TEST(HostSilence, the_kernel_gives_up_later) {
  for (const Nanos timeout :
       {kSecond / 10, 2 * kSecond, 8 * kSecond, kTimeout, 300 * kSecond, 600 * kSecond}) {
    const Tries tries = tries_for(timeout);
    // A look comes once a second.
    EXPECT_GE(tries.keep_alive_count * tries.keep_alive_s * kSecond, give_up_after(timeout) + kSecond);
    Nanos tried_for = 0, gap = kFirstGap;
    for (int retry = 0; retry <= 15; ++retry, gap = std::min(2 * gap, tries.gap)) tried_for += gap;
    EXPECT_GT(tried_for, give_up_after(timeout)) << timeout;
  }
}

}  // namespace
}  // namespace rueda::transport::host_silence_test
