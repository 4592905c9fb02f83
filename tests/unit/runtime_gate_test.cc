#include "rueda/runtime/gate.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>

namespace rueda::runtime {
namespace {

bool would_wake(const Gate& gate) {
  std::vector<pollfd> polled;
  for (const int fd : gate.fds()) polled.push_back({.fd = fd, .events = POLLIN, .revents = 0});
  return poll(polled.data(), polled.size(), 0) > 0;
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

TEST(Gate, of_nothing_wakes_nobody) {
  Gate gate({});
  gate.close();
  gate.open();
  EXPECT_FALSE(would_wake(gate));
}

}  // namespace
}  // namespace rueda::runtime
