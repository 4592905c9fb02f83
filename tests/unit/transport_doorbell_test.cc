#include "rueda/transport/shm/doorbell.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <memory>
#include <string>

namespace rueda::transport::doorbell_test {
namespace {

using Rung = Doorbell::Rung;

std::string name_of(const char* which) { return "rueda-test-bell-" + std::to_string(getpid()) + "-" + which; }

struct Side {
  explicit Side(const char* which) : poller(Poller::make().value()) {
    bell = Doorbell::open(name_of(which), *poller).value();
  }
  Rung look() {
    poller->poll();
    return bell->take();
  }
  bool would_wake() {
    pollfd polled{.fd = poller->fd(), .events = POLLIN, .revents = 0};
    return poll(&polled, 1, 0) == 1;
  }
  std::unique_ptr<Poller> poller;
  std::unique_ptr<Doorbell> bell;
};

TEST(Doorbell, wakes_whoever_sleeps_on_it_and_says_why) {
  Side a("a"), b("b");
  EXPECT_EQ(a.look(), Rung::kNo);
  EXPECT_TRUE(b.bell->ring(name_of("a")));
  EXPECT_TRUE(a.would_wake());
  EXPECT_EQ(a.look(), Rung::kForData);
  EXPECT_EQ(a.look(), Rung::kNo);
  EXPECT_FALSE(a.would_wake());
  EXPECT_TRUE(b.bell->ring(name_of("a"), Rung::kForNews));
  EXPECT_EQ(a.look(), Rung::kForNews);
  EXPECT_EQ(b.look(), Rung::kNo);
}

TEST(Doorbell, that_is_full_has_been_rung_and_may_hide_news) {
  Side a("a"), b("b");
  for (int i = 0; i < 2000; ++i) ASSERT_TRUE(b.bell->ring(name_of("a"))) << i;
  ASSERT_TRUE(b.bell->ring(name_of("a"), Rung::kForNews)) << "there is no room for it";
  EXPECT_EQ(a.look(), Rung::kForNews);
  while (a.bell->has_rung()) a.look();
  EXPECT_TRUE(b.bell->ring(name_of("a")));
  EXPECT_TRUE(a.would_wake()) << "it rings again once it has been emptied";
}

TEST(Doorbell, says_that_there_is_none_of_that_name) {
  const Side a("a");
  EXPECT_FALSE(a.bell->ring(name_of("nobody")));
}

TEST(Doorbell, is_not_opened_twice_under_one_name) {
  const Side a("a");
  EXPECT_FALSE(Doorbell::open(name_of("a"), *a.poller).is_ok());
}

}  // namespace
}  // namespace rueda::transport::doorbell_test
