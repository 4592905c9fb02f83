#include "rueda/runtime/gate.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>

namespace rueda::runtime {
namespace {

bool would_wake(const Gate& gate, int within_ms = 0) {
  std::vector<pollfd> polled;
  for (const int fd : gate.fds()) polled.push_back({.fd = fd, .events = POLLIN, .revents = 0});
  return poll(polled.data(), polled.size(), within_ms) > 0;
}

class GateTest : public testing::Test {
 protected:
  void ring() const { ASSERT_EQ(eventfd_write(second_.get(), 1), 0); }

  UniqueFd first_{eventfd(0, EFD_NONBLOCK)}, second_{eventfd(0, EFD_NONBLOCK)};
  Gate gate_{{first_.get(), second_.get()}};
};

TEST_F(GateTest, lets_through_what_arrives_while_it_is_open) {
  EXPECT_FALSE(would_wake(gate_));
  ring();
  EXPECT_TRUE(would_wake(gate_));
}

TEST_F(GateTest, is_silent_while_it_is_closed) {
  gate_.close();
  ring();
  EXPECT_FALSE(would_wake(gate_));
}

TEST_F(GateTest, wakes_for_what_arrived_before_it_was_opened) {
  gate_.close();
  ring();
  gate_.open();
  EXPECT_TRUE(would_wake(gate_));
}

TEST_F(GateTest, closed_for_a_while_is_silent_until_then) {
  ring();
  const Nanos now = monotonic_now();
  gate_.close_until(now + 50 * kMillisecond, now);
  EXPECT_FALSE(would_wake(gate_));
  EXPECT_TRUE(would_wake(gate_, 5000));
}

TEST_F(GateTest, wakes_at_its_time_though_nothing_has_arrived) {
  const Nanos now = monotonic_now();
  gate_.close_until(now + kMillisecond, now);
  gate_.close();
  EXPECT_TRUE(would_wake(gate_, 5000));
  gate_.open();
  EXPECT_FALSE(would_wake(gate_)) << "the time has been seen";
}

TEST_F(GateTest, keeps_an_earlier_time_until_it_is_past) {
  const Nanos now = monotonic_now();
  gate_.close_until(now + kMillisecond, now);
  gate_.close_until(now + 3600 * kSecond, now);
  EXPECT_TRUE(would_wake(gate_, 5000));
  gate_.close_until(now + 3600 * kSecond, monotonic_now());
  EXPECT_FALSE(would_wake(gate_));
}

TEST(Gate, of_nothing_wakes_nobody) {
  Gate gate({});
  gate.close();
  gate.open();
  EXPECT_FALSE(would_wake(gate));
}

}  // namespace
}  // namespace rueda::runtime
