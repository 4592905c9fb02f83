// Strangers, time and descriptors, with a clock of our own.
#include "rueda/transport/connector.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <vector>

#include "rueda/transport/shm/descriptors.h"

namespace rueda::transport::connector_test {
namespace {

using ::testing::HasSubstr;

class ConnectorTest : public ::testing::Test {
 protected:
  ConnectorTest()
      : poller_(Poller::make().value()),
        address_(make_abstract_address("rueda-connector-test-" + std::to_string(getpid()))),
        connector_(identity_, ConnectionKind::kShm, *poller_, [](int) { return Status::ok(); }) {
    EXPECT_TRUE(connector_.listen_on(open_listening(address_, 1024).value()).is_ok());
  }

  UniqueFd call() {
    UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    EXPECT_EQ(::connect(fd.get(), address_.get(), address_.size), 0);
    return fd;
  }
  void step(Nanos now) {
    poller_->poll();
    connector_.progress(now);
  }
  static bool is_hung_up(const UniqueFd& fd) {
    char byte = 0;
    const ssize_t got = recv(fd.get(), &byte, 1, MSG_DONTWAIT);
    return got == 0 || (got < 0 && errno == ECONNRESET);
  }

  Identity identity_{.job = "job", .rank = 0, .size = 2, .secret = {Bytes(32)}, .release = "1"};
  std::unique_ptr<Poller> poller_;
  SocketAddress address_;
  Connector connector_;
};

TEST_F(ConnectorTest, a_silent_stranger_is_shown_out_after_five_seconds_and_the_timer_knows) {
  const Nanos start = monotonic_now();
  const UniqueFd stranger = call();
  step(start);
  EXPECT_EQ(connector_.pending_count(), 1u);
  EXPECT_EQ(connector_.next_due(), start + 5 * kSecond);
  step(start + 4 * kSecond);
  EXPECT_FALSE(is_hung_up(stranger));
  step(start + 5 * kSecond + 1);
  EXPECT_TRUE(is_hung_up(stranger));
  EXPECT_EQ(connector_.pending_count(), 0u);
  EXPECT_EQ(connector_.next_due(), 0);
}

TEST_F(ConnectorTest, at_most_sixty_four_strangers_wait_and_the_oldest_goes_first) {
  std::vector<UniqueFd> strangers;
  for (int i = 0; i < 100; ++i) strangers.push_back(call());
  for (int i = 0; i < 4; ++i) step(1);
  EXPECT_EQ(connector_.pending_count(), Connector::kMaxPending);
  for (size_t i = 0; i < strangers.size(); ++i) EXPECT_EQ(is_hung_up(strangers[i]), i < 36) << i;
}

TEST_F(ConnectorTest, a_peer_in_mid_handshake_outlives_newer_strangers) {
  const UniqueFd peer = call();
  Handshake handshake = Handshake::client(
      identity_.secret, {.job = "job", .kind = ConnectionKind::kShm, .from = 1, .to = 0}, identity_.release);
  const Bytes hello = handshake.take_output();
  ASSERT_EQ(send(peer.get(), hello.data(), hello.size(), 0), static_cast<ssize_t>(hello.size()));
  step(1);
  std::vector<UniqueFd> strangers;
  for (int i = 0; i < 200; ++i) {
    strangers.push_back(call());
    ASSERT_EQ(send(strangers.back().get(), "RUD1", 4, 0), 4) << "knowing how a greeting begins is not enough";
  }
  for (int i = 0; i < 8; ++i) step(1);
  for (int round = 0; round < 2; ++round) {
    std::array<std::byte, kMaxHandshakeBytes> in;
    const ssize_t got = recv(peer.get(), in.data(), in.size(), 0);
    ASSERT_GT(got, 0);
    ASSERT_TRUE(handshake.feed(std::span(in).first(static_cast<size_t>(got))).is_ok());
    const Bytes out = handshake.take_output();
    ASSERT_EQ(send(peer.get(), out.data(), out.size(), 0), static_cast<ssize_t>(out.size()));
    step(1);
  }
  EXPECT_TRUE(handshake.is_done());
  EXPECT_EQ(connector_.take_connected().size(), 1u);
}

// While it lives, this process can open nothing.
class NoDescriptors {
 public:
  NoDescriptors() {
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
    const UniqueFd highest(dup(0));
    rlimit none = before_;
    none.rlim_cur = static_cast<rlim_t>(highest.get());  // nothing below it is free
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    for (int i = 0; i < 100; ++i) {
      UniqueFd filler(open("/dev/null", O_RDONLY | O_CLOEXEC));
      if (!filler.is_open()) break;
      fillers_.push_back(std::move(filler));
    }
  }
  ~NoDescriptors() { EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before_), 0); }

 private:
  rlimit before_{};
  std::vector<UniqueFd> fillers_;
};

TEST_F(ConnectorTest, without_descriptors_callers_are_turned_away_and_later_ones_are_served) {
  std::vector<UniqueFd> callers;
  for (int i = 0; i < 5; ++i) callers.push_back(call());
  {
    const NoDescriptors none;
    step(1);
  }
  for (const UniqueFd& caller : callers) EXPECT_TRUE(is_hung_up(caller));
  const std::vector<Loss> failures = connector_.take_failures();
  ASSERT_FALSE(failures.empty()) << "there was no stranger whose descriptor could have been had";
  EXPECT_EQ(failures.front().peer, -1);
  EXPECT_THAT(failures.front().status.why, HasSubstr("out of file descriptors"));
  const UniqueFd late = call();
  step(1);
  EXPECT_EQ(connector_.pending_count(), 1u);
}

TEST_F(ConnectorTest, a_lack_of_descriptors_that_lasts_is_a_failure_though_callers_wait) {
  std::vector<UniqueFd> callers;
  for (int second = 1; second <= 6; ++second) {
    const Nanos now = second * kSecond;
    callers.push_back(call());
    step(now);
    ASSERT_EQ(connector_.pending_count(), 1u);
    callers.push_back(call());
    const NoDescriptors none;
    step(now);
    EXPECT_EQ(connector_.take_failures().size(), second < 6 ? 0u : 1u) << second;
  }
}

TEST_F(ConnectorTest, a_dialler_without_descriptors_says_so_at_once) {
  Connector dialler(identity_, ConnectionKind::kShm, *poller_, [](int) { return Status::ok(); });
  dialler.dial({1, 0}, address_);
  {
    const NoDescriptors none;
    dialler.progress(1);
  }
  const std::vector<Loss> failures = dialler.take_failures();
  ASSERT_EQ(failures.size(), 1u);
  EXPECT_EQ(failures.front().peer, 1);
  EXPECT_THAT(failures.front().status.why,
              ::testing::AllOf(HasSubstr("out of file descriptors"), HasSubstr("ulimit -n")));
}

TEST(ShmDescriptors, for_which_the_receiver_has_no_room_are_told_from_garbage) {
  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  const UniqueFd one(ends[0]), other(ends[1]);
  const std::array<int, 3> given = {0, 1, 2};
  using State = ReceivedDescriptors::Receipt;
  {
    const NoDescriptors none;
    ASSERT_TRUE(send_descriptors(one.get(), 7, given));
    EXPECT_EQ(receive_descriptors(other.get(), 7).state, State::kNoRoom);
  }
  ASSERT_TRUE(send_descriptors(one.get(), 7, given));
  const ReceivedDescriptors received = receive_descriptors(other.get(), 7);
  EXPECT_EQ(received.state, State::kReceived);
  EXPECT_EQ(received.descriptors.size(), given.size());
}

TEST_F(ConnectorTest, a_dialler_backs_off_between_attempts_and_asks_for_a_timer) {
  Connector dialler(identity_, ConnectionKind::kShm, *poller_, [](int) { return Status::ok(); });
  dialler.dial({1, 0}, make_abstract_address("rueda-nobody-" + std::to_string(getpid())));
  EXPECT_TRUE(dialler.has_work());
  Nanos now = 1000 * kSecond, previous = 0;
  for (int i = 0; i < 12; ++i) {
    dialler.progress(now);
    const Nanos wait = dialler.next_due() - now;
    EXPECT_GE(wait, previous);
    EXPECT_LE(wait, 500 * kMillisecond);
    EXPECT_FALSE(dialler.has_work());
    previous = wait;
    now += wait;
  }
  EXPECT_EQ(previous, 500 * kMillisecond);
  EXPECT_TRUE(dialler.take_failures().empty());
}

TEST_F(ConnectorTest, a_dialler_can_say_why_a_peer_is_not_connected) {
  Connector dialler(identity_, ConnectionKind::kShm, *poller_, [](int) { return Status::ok(); });
  EXPECT_EQ(dialler.trouble_with(1), "") << "it does not dial this rank";
  dialler.dial({1, 0}, make_abstract_address("rueda-nobody-" + std::to_string(getpid())));
  dialler.progress(1);
  EXPECT_THAT(dialler.trouble_with(1),
              ::testing::AllOf(HasSubstr("Connection refused"), HasSubstr("the process has ended")));
  dialler.progress(dialler.next_due());
  EXPECT_THAT(dialler.trouble_with(1), HasSubstr("Connection refused"))
      << "the next attempt had the same end";
  dialler.dial({0, 0}, address_);
  dialler.progress(1);
  EXPECT_THAT(dialler.trouble_with(0), HasSubstr("does not complete the handshake"));
}

TEST(PollerTest, its_timer_makes_the_descriptor_readable_and_silence_does_not) {
  auto poller = Poller::make().value();
  pollfd polled{poller->fd(), POLLIN, 0};
  EXPECT_EQ(poll(&polled, 1, 0), 0);
  poller->wake_at(monotonic_now() + kMillisecond);
  EXPECT_EQ(poll(&polled, 1, 10'000), 1);
  EXPECT_TRUE(poller->poll());
  EXPECT_EQ(poll(&polled, 1, 0), 0);
}

}  // namespace
}  // namespace rueda::transport::connector_test
