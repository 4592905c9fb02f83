// Who may connect, and what strangers can use up, for the transports that listen.
#include <sys/socket.h>

#include <algorithm>
#include <filesystem>
#include <random>

#include "rueda/base/socket.h"
#include "rueda/transport/connector.h"
#include "transport_world.h"

namespace rueda::transport::testing::trust_test {
namespace {

class Trust : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (const std::string why = why_skipped(GetParam()); !why.empty()) GTEST_SKIP() << why;
  }
  static ConnectionKind kind() {
    if (is_ucx(GetParam())) return ConnectionKind::kUcx;
    return GetParam() == "tcp" ? ConnectionKind::kData : ConnectionKind::kShm;
  }
  static SocketAddress socket_address_of(const Transport& transport) {
    const std::string text = transport.address();
    if (GetParam() != "shm") return parse_tcp_address(text).value();
    return make_abstract_address(text.substr(text.find('@') + 1));
  }
  static UniqueFd connect_raw(const SocketAddress& address) {
    UniqueFd fd(socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    (void)!::connect(fd.get(), address.get(), address.size);
    return fd;
  }
  // Two ranks that differ in their identities.
  static std::vector<Loss> losses_between(const Identity& low, const Identity& high) {
    auto a = make_transport(GetParam(), low, nullptr);
    auto b = make_transport(GetParam(), high, nullptr);
    EXPECT_TRUE(a->connect(1, b->address(), 0).is_ok());
    EXPECT_TRUE(b->connect(0, a->address(), 0).is_ok());
    std::vector<Completion> done;
    const Deadline deadline = Deadline::after(30 * kSecond);
    std::vector<Loss> losses;
    while (losses.empty() && b->endpoint(0, 0) == nullptr && !deadline.is_past()) {
      a->progress(done);
      b->progress(done);
      losses = b->take_losses();
    }
    EXPECT_EQ(a->endpoint(1, 0), nullptr);
    EXPECT_EQ(b->endpoint(0, 0), nullptr);
    return losses;
  }
};

size_t open_descriptors() {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
}

TEST_P(Trust, a_wrong_secret_is_refused_and_named) {
  Identity wrong = identity_of(1, 2);
  wrong.secret.key[0] = std::byte{1};
  const std::vector<Loss> losses = losses_between(identity_of(0, 2), wrong);
  ASSERT_EQ(losses.size(), 1u);
  EXPECT_EQ(losses[0].peer, 0);
  EXPECT_EQ(losses[0].status.code, Code::kPermissionDenied);
  EXPECT_NE(losses[0].status.why.find("secret"), std::string::npos) << losses[0].status.why;
}

TEST_P(Trust, another_epoch_job_or_release_is_refused_and_named) {
  Identity other = identity_of(1, 2);
  other.epoch = 8;
  std::vector<Loss> losses = losses_between(identity_of(0, 2), other);
  ASSERT_EQ(losses.size(), 1u);
  EXPECT_NE(losses[0].status.why.find("epoch 8"), std::string::npos) << losses[0].status.why;
  other = identity_of(1, 2);
  other.job = "another";
  losses = losses_between(identity_of(0, 2), other);
  ASSERT_EQ(losses.size(), 1u);
  EXPECT_NE(losses[0].status.why.find("another"), std::string::npos) << losses[0].status.why;
  other = identity_of(1, 2);
  other.release = "9.9.9";
  losses = losses_between(identity_of(0, 2), other);
  ASSERT_EQ(losses.size(), 1u);
  EXPECT_NE(losses[0].status.why.find("this side runs rueda 9.9.9"), std::string::npos)
      << losses[0].status.why;
}

TEST_P(Trust, an_unusable_identity_is_refused_before_anything_listens) {
  for (const auto& spoil : std::vector<std::function<void(Identity&)>>{
           [](Identity& id) { id.secret.key.resize(3); }, [](Identity& id) { id.job = std::string(65, 'j'); },
           [](Identity& id) { id.rank = 2; }, [](Identity& id) { id.release = std::string(65, '1'); }}) {
    Identity identity = identity_of(1, 2);
    spoil(identity);
    EXPECT_EQ(try_transport(GetParam(), identity).status().code, Code::kInvalidArgument);
  }
}

TEST_P(Trust, five_hundred_garbage_connections_leave_channels_working_and_leak_no_descriptor) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const size_t before = open_descriptors();
  {
    World world(GetParam(), 2);
    const SocketAddress target = socket_address_of(world.at(0));
    std::vector<UniqueFd> strangers;
    const auto flood = [&](int count) {
      for (int i = 0; i < count; ++i) {
        UniqueFd fd = connect_raw(target);
        Bytes garbage(random() % 600);
        for (std::byte& b : garbage) b = static_cast<std::byte>(random());
        // One third says nothing, one third sends noise, and one third begins well and then stays silent.
        if (i % 3 == 1) (void)!::send(fd.get(), garbage.data(), garbage.size(), MSG_NOSIGNAL);
        if (i % 3 == 2) (void)!::send(fd.get(), "RUD1", 4, MSG_NOSIGNAL);
        if (i % 2 == 0) strangers.push_back(std::move(fd));
        if (i % 16 == 0) world.pump();
      }
    };
    flood(250);
    world.connect_all(2);
    flood(250);
    Bytes sent = pattern(100'000, 1), received(100'000);
    world.end(0, 1).send(1, sent);
    world.end(1, 0).recv(1, received);
    ASSERT_TRUE(world.pump_until([&] { return world.is_done(0, 1) && world.is_done(1, 1); }));
    EXPECT_TRUE(sent == received);
    EXPECT_LE(open_descriptors(), before + strangers.size() + Connector::kMaxPending + 30);
  }
  EXPECT_EQ(open_descriptors(), before);
}

// Only over tcp, because a shared-memory socket has a new random name each time.
TEST(TrustTcp, a_peer_that_is_not_up_yet_is_dialled_again) {
  uint16_t port = 0;
  {
    const auto gone = make_tcp({.identity = identity_of(0, 2)}).value();
    port = parse_tcp_address(gone->address()).value().port();
  }
  auto high = make_tcp({.identity = identity_of(1, 2)}).value();
  ASSERT_TRUE(high->connect(0, "127.0.0.1:" + std::to_string(port), 0).is_ok());
  std::vector<Completion> done;
  for (int i = 0; i < 50; ++i) high->progress(done);
  EXPECT_EQ(high->endpoint(0, 0), nullptr);
  EXPECT_TRUE(high->take_losses().empty());
  auto low = make_tcp({.identity = identity_of(0, 2), .bind_port = port}).value();
  const Deadline deadline = Deadline::after(30 * kSecond);
  while ((high->endpoint(0, 0) == nullptr || low->endpoint(1, 0) == nullptr) && !deadline.is_past()) {
    high->progress(done);
    low->progress(done);
  }
  EXPECT_NE(high->endpoint(0, 0), nullptr);
}

TEST_P(Trust, a_rank_that_should_listen_may_not_dial_and_none_comes_in_twice) {
  World world(GetParam(), 2);
  world.connect_all();
  const SocketAddress target = socket_address_of(world.at(0));
  // Both know the secret: one pretends to be rank 0 and dials itself, the other is a second rank 1.
  for (const Rank from : {0, 1, 2, -1}) {
    UniqueFd fd = connect_raw(target);
    Handshake handshake = Handshake::client(
        identity_of(0, 2).secret,
        {.job = "conformance", .epoch = 7, .kind = kind(), .channel = 0, .from = from, .to = 0}, "0.1.0");
    bool is_closed = false;
    ASSERT_TRUE(world.pump_until([&] {
      const Bytes out = handshake.take_output();
      if (!out.empty()) (void)!::send(fd.get(), out.data(), out.size(), MSG_NOSIGNAL);
      std::array<std::byte, kMaxHandshakeBytes> in;
      const ssize_t got = ::recv(fd.get(), in.data(), in.size(), MSG_DONTWAIT);
      if (got == 0 || (got < 0 && errno == ECONNRESET)) is_closed = true;
      if (got > 0 && !handshake.is_done())
        (void)handshake.feed(std::span(in).first(static_cast<size_t>(got)));
      return is_closed;
    })) << "from "
        << from;
  }
  Bytes sent = pattern(100, 1), received(100);
  world.end(1, 0).send(1, sent);
  world.end(0, 1).recv(1, received);
  ASSERT_TRUE(world.pump_until([&] { return world.is_done(1, 1) && world.is_done(0, 1); }));
  EXPECT_TRUE(sent == received) << "the true channel is untouched";
}

INSTANTIATE_TEST_SUITE_P(Transports, Trust, ::testing::Values("tcp", "shm", "ucx_tcp", "ucx_sm"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace rueda::transport::testing::trust_test
