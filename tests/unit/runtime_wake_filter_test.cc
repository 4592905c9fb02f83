#include "rueda/runtime/wake_filter.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>

namespace rueda::runtime::wake_filter_test {
namespace {

bool would_wake(const WakeFilter& filter, int within_ms = 0) {
  std::vector<pollfd> polled;
  for (const int fd : filter.fds()) polled.push_back({.fd = fd, .events = POLLIN, .revents = 0});
  return poll(polled.data(), polled.size(), within_ms) > 0;
}

class WakeFilterTest : public testing::Test {
 protected:
  void ring() const { ASSERT_EQ(eventfd_write(second_.get(), 1), 0); }

  UniqueFd first_{eventfd(0, EFD_NONBLOCK)}, second_{eventfd(0, EFD_NONBLOCK)};
  WakeFilter wake_filter_{{first_.get(), second_.get()}};
};

TEST_F(WakeFilterTest, lets_through_what_arrives_while_it_is_open) {
  EXPECT_FALSE(would_wake(wake_filter_));
  ring();
  EXPECT_TRUE(would_wake(wake_filter_));
}

TEST_F(WakeFilterTest, is_silent_while_it_is_closed) {
  wake_filter_.close();
  ring();
  EXPECT_FALSE(would_wake(wake_filter_));
}

TEST_F(WakeFilterTest, wakes_for_what_arrived_before_it_was_opened) {
  wake_filter_.close();
  ring();
  wake_filter_.open();
  EXPECT_TRUE(would_wake(wake_filter_));
}

TEST_F(WakeFilterTest, closed_for_a_while_is_silent_until_then) {
  ring();
  const Nanos now = monotonic_now();
  wake_filter_.close_until(now + 50 * kMillisecond, now);
  EXPECT_FALSE(would_wake(wake_filter_));
  EXPECT_TRUE(would_wake(wake_filter_, 5000));
}

TEST_F(WakeFilterTest, wakes_at_its_time_though_nothing_has_arrived) {
  const Nanos now = monotonic_now();
  wake_filter_.close_until(now + kMillisecond, now);
  wake_filter_.close();
  EXPECT_TRUE(would_wake(wake_filter_, 5000));
  wake_filter_.open();
  EXPECT_FALSE(would_wake(wake_filter_)) << "the time has been seen";
}

TEST_F(WakeFilterTest, keeps_an_earlier_time_until_it_is_past) {
  const Nanos now = monotonic_now();
  wake_filter_.close_until(now + kMillisecond, now);
  wake_filter_.close_until(now + 3600 * kSecond, now);
  EXPECT_TRUE(would_wake(wake_filter_, 5000));
  wake_filter_.close_until(now + 3600 * kSecond, monotonic_now());
  EXPECT_FALSE(would_wake(wake_filter_));
}

TEST(WakeFilter, of_nothing_wakes_nobody) {
  WakeFilter filter({});
  filter.close();
  filter.open();
  EXPECT_FALSE(would_wake(filter));
}

}  // namespace
}  // namespace rueda::runtime::wake_filter_test
