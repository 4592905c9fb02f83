// What reaches a rank through UCX: messages of strangers, and of a proven peer that breaks the protocol.
#include <sys/socket.h>

#include <array>
#include <deque>
#include <utility>

#include "rueda/base/socket.h"
#include "rueda/transport/ucx/greeting.h"
#include "rueda/transport/ucx/worker.h"
#include "transport_world.h"

namespace rueda::transport::testing::ucx_trust_test {
namespace {

// Rank 0 is a transport. Rank 1 is this test: it proves itself on a socket, and then speaks UCX by hand.
class UcxTrust : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = why_skipped("ucx_tcp"); !why.empty()) GTEST_SKIP() << why;
    mine_ = make_transport("ucx_tcp", identity_of(0, 2), nullptr);
    ASSERT_TRUE(mine_->connect(1, mine_->address(), 0).is_ok());
    worker_ = UcxWorker::make(2, [](auto, ActiveMessage&) {}).value();
    prove();
    read_greeting();
    const Bytes own = encode_greeting({}, worker_->address());
    ASSERT_EQ(::send(socket_.get(), own.data(), own.size(), MSG_NOSIGNAL), static_cast<ssize_t>(own.size()));
    peer_ = worker_->connect(greeting_.address(), why_lost_).value();
  }
  void TearDown() override {
    mine_.reset();
    if (peer_ != nullptr) worker_->disconnect(peer_);
    for (int i = 0; i < 1000 && open_count_ > 0; ++i) worker_->progress();
  }

  void pump() {
    std::vector<Completion> done;
    mine_->progress(done);
    for (Loss& loss : mine_->take_losses()) losses_.push_back(std::move(loss));
    if (worker_) worker_->progress();
  }
  bool pump_until(const std::function<bool()>& condition) {
    const Deadline deadline = Deadline::after(30 * kSecond);
    while (!condition() && !deadline.is_past()) pump();
    return condition();
  }
  void prove() {
    const SocketAddress address = parse_tcp_address(mine_->address()).value();
    socket_ = UniqueFd(socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    (void)!::connect(socket_.get(), address.get(), address.size);
    Handshake handshake = Handshake::client(
        identity_of(0, 2).secret,
        {.job = "conformance", .epoch = 7, .kind = ConnectionKind::kUcx, .channel = 0, .from = 1, .to = 0},
        "0.1.0");
    ASSERT_TRUE(pump_until([&] {
      const Bytes out = handshake.take_output();
      if (!out.empty()) (void)!::send(socket_.get(), out.data(), out.size(), MSG_NOSIGNAL);
      std::byte next{};  // one at a time: what follows the handshake is the greeting
      while (!handshake.is_done() && ::recv(socket_.get(), &next, 1, MSG_DONTWAIT) == 1)
        if (!handshake.feed({&next, 1}).is_ok()) return true;
      return handshake.is_done();
    }));
  }
  void read_greeting() {
    ASSERT_TRUE(pump_until([&] {
      std::array<std::byte, 4096> part;
      const ssize_t got =
          ::recv(socket_.get(), part.data(), std::min(part.size(), greeting_.missing()), MSG_DONTWAIT);
      if (got > 0) (void)greeting_.feed(std::span(part).first(static_cast<size_t>(got)));
      return greeting_.missing() == 0;
    }));
  }
  // As if the process had ended, but for its socket.
  void end_ucx() {
    ASSERT_TRUE(pump_until([&] { return open_count_ == 0; }));
    worker_->disconnect(std::exchange(peer_, nullptr));
    worker_.reset();
  }
  void send(PieceHeader header, size_t payload = 0) {
    sent_.push_back({header, {}, Bytes(payload)});
    Sent& one = sent_.back();
    one.operation.open_count = &open_count_;
    worker_->send(peer_, std::as_bytes(std::span(&one.header, 1)), one.payload, true, one.operation);
  }
  [[nodiscard]] PieceHeader header(PieceKind kind) const {
    return {.token = greeting_.token(), .from = 1, .kind = kind};
  }

  struct Sent {
    PieceHeader header;
    UcxOperation operation;
    Bytes payload;
  };
  std::unique_ptr<Transport> mine_;
  std::unique_ptr<UcxWorker> worker_;
  UniqueFd socket_;
  GreetingReader greeting_;
  ucx::Peer* peer_ = nullptr;
  ucx::Code8 why_lost_ = ucx::kOk;
  size_t open_count_ = 0;
  std::deque<Sent> sent_;
  std::vector<Loss> losses_;
};

TEST_F(UcxTrust, a_message_without_the_token_of_its_link_is_dropped) {
  PieceHeader wrong = header(PieceKind::kHello);
  wrong.token[15] ^= std::byte{1};
  send(wrong);
  PieceHeader other_rank = header(PieceKind::kHello);
  other_rank.from = 0;
  send(other_rank);
  ASSERT_TRUE(pump_until([&] { return open_count_ == 0; }));
  for (int i = 0; i < 200; ++i) pump();
  EXPECT_EQ(mine_->endpoint(1, 0), nullptr);
  EXPECT_NE(mine_->trouble_with(1).find("no message comes through UCX"), std::string::npos);
  send(header(PieceKind::kHello));
  EXPECT_TRUE(pump_until([&] { return mine_->endpoint(1, 0) != nullptr; }));
  EXPECT_TRUE(losses_.empty());
}

TEST_F(UcxTrust, a_piece_beyond_the_window_ends_the_link) {
  send(header(PieceKind::kHello));
  PieceHeader piece = header(PieceKind::kData);
  piece.piece = kUcxWindow;
  send(piece);
  ASSERT_TRUE(pump_until([&] { return !losses_.empty(); }));
  EXPECT_EQ(losses_[0].peer, 1);
  EXPECT_NE(losses_[0].status.why.find("rank 1 (channel 0) broke the protocol: piece 32"), std::string::npos)
      << losses_[0].status.why;
}

TEST_F(UcxTrust, a_piece_that_comes_twice_ends_the_link) {
  send(header(PieceKind::kHello));
  for (int i = 0; i < 2; ++i) send(header(PieceKind::kData));
  ASSERT_TRUE(pump_until([&] { return !losses_.empty(); }));
  EXPECT_NE(losses_[0].status.why.find("comes twice"), std::string::npos) << losses_[0].status.why;
}

TEST_F(UcxTrust, a_count_of_pieces_that_were_never_sent_ends_the_link) {
  send(header(PieceKind::kHello));
  PieceHeader report = header(PieceKind::kReport);
  report.consumed = 1;
  send(report);
  ASSERT_TRUE(pump_until([&] { return !losses_.empty(); }));
  EXPECT_NE(losses_[0].status.why.find("never sent"), std::string::npos) << losses_[0].status.why;
}

TEST_F(UcxTrust, a_piece_of_another_size_than_its_message_ends_the_link_without_touching_the_buffer) {
  send(header(PieceKind::kHello));
  ASSERT_TRUE(pump_until([&] { return mine_->endpoint(1, 0) != nullptr; }));
  Bytes buffer(100, std::byte{7});
  mine_->endpoint(1, 0)->recv(1, buffer);
  PieceHeader piece = header(PieceKind::kData);
  piece.bytes = 100;
  send(piece, 5000);
  ASSERT_TRUE(pump_until([&] { return !losses_.empty(); }));
  EXPECT_NE(losses_[0].status.why.find("wrong size"), std::string::npos) << losses_[0].status.why;
  EXPECT_EQ(buffer, Bytes(100, std::byte{7}));
}

TEST_F(UcxTrust, a_channel_that_cannot_be_ends_the_link) {
  send(header(PieceKind::kHello));
  PieceHeader piece = header(PieceKind::kData);
  piece.channel = 16;
  send(piece);
  ASSERT_TRUE(pump_until([&] { return !losses_.empty(); }));
  EXPECT_EQ(losses_[0].peer, 1);
}

TEST_F(UcxTrust, a_peer_that_says_more_than_its_address_on_the_socket_ends_the_link) {
  send(header(PieceKind::kHello));
  ASSERT_EQ(::send(socket_.get(), "x", 1, MSG_NOSIGNAL), 1);
  ASSERT_TRUE(pump_until([&] { return !losses_.empty(); }));
  EXPECT_NE(losses_[0].status.why.find("says more than its address"), std::string::npos);
}

// UCX's TCP has one code for a dead process and for a broken connection.
TEST_F(UcxTrust, the_socket_tells_a_dead_peer_from_a_lost_connection) {
  send(header(PieceKind::kHello));
  ASSERT_TRUE(pump_until([&] { return mine_->endpoint(1, 0) != nullptr; }));
  end_ucx();
  for (int i = 0; i < 200; ++i) pump();
  EXPECT_TRUE(losses_.empty()) << "the socket may still end";
  socket_.reset();
  ASSERT_TRUE(pump_until([&] { return !losses_.empty(); }));
  EXPECT_NE(losses_[0].status.why.find("closed its connection"), std::string::npos) << losses_[0].status.why;
}

TEST_F(UcxTrust, a_lost_connection_of_ucx_is_told_to_the_peer_on_the_socket) {
  send(header(PieceKind::kHello));
  ASSERT_TRUE(pump_until([&] { return mine_->endpoint(1, 0) != nullptr; }));
  end_ucx();
  ASSERT_TRUE(pump_until([&] { return !losses_.empty(); }));
  EXPECT_NE(losses_[0].status.why.find("lost its UCX connection ("), std::string::npos);
  Bytes said;
  ASSERT_TRUE(pump_until([&] {
    std::byte next{};
    const ssize_t got = ::recv(socket_.get(), &next, 1, MSG_DONTWAIT);
    if (got == 1) said.push_back(next);
    return got == 0;
  }));
  EXPECT_EQ(said, Bytes{kUcxIsLost});
}

TEST_F(UcxTrust, a_peer_that_has_lost_ucx_is_not_called_closed) {
  send(header(PieceKind::kHello));
  ASSERT_EQ(::send(socket_.get(), &kUcxIsLost, 1, MSG_NOSIGNAL), 1);
  socket_.reset();
  ASSERT_TRUE(pump_until([&] { return !losses_.empty(); }));
  EXPECT_NE(losses_[0].status.why.find("lost its UCX connection to this rank"), std::string::npos);
}

}  // namespace
}  // namespace rueda::transport::testing::ucx_trust_test
