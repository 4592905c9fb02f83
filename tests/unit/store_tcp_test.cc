// What only the TCP store does: proof of identity, hostile peers, broken connections.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <thread>

#include "../soon.h"
#include "rueda/base/sleep.h"
#include "rueda/store/ended.h"
#include "rueda/store/messages.h"
#include "rueda/store/socket.h"
#include "rueda/store/store.h"

namespace rueda::store::tcp_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(StoreEnded, is_read_as_it_was_written_and_anything_else_is_nothing) {
  const auto ended = parse_ended(format_ended({.size = 3, .rank = 1, .how = "rank 1 on b exited", .pid = 7}));
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->size, 3);
  EXPECT_EQ(ended->rank, 1);
  EXPECT_EQ(ended->pid, 7);
  EXPECT_EQ(ended->how, "rank 1 on b exited");
  for (const char* text :
       {"", "3", "3 1", "3 1 7", "3 1 x y", "3 3 7 x", "3 -1 7 x", "x 1 7 y", "99999999999 1 7 x"})
    EXPECT_FALSE(parse_ended(text)) << text;
}

class StoreTcp : public ::testing::Test {
 protected:
  void start(int port = 0) { server_ = serve_store("127.0.0.1", port, "job", secret_, "1.0").value(); }
  void SetUp() override { start(); }

  Result<std::unique_ptr<Store>> open(const Secret& secret, const std::string& job = "job",
                                      const std::string& release = "1.0") {
    return open_tcp_store("127.0.0.1", server_->port(), job, secret, release, soon());
  }
  std::unique_ptr<Store> open() { return open(secret_).value(); }

  UniqueFd stranger() {
    const auto address = resolve("127.0.0.1", server_->port()).value().front();
    return connect_to(address, soon()).value();
  }

  // A connection that has proved itself and may now misbehave.
  UniqueFd trusted_raw() {
    UniqueFd fd = stranger();
    ConnectionIdentity mine;
    mine.job = "job";
    mine.kind = ConnectionKind::kStore;
    mine.protocol = kStoreProtocol;
    Handshake handshake = Handshake::client(secret_, mine, "1.0");
    std::array<std::byte, 1024> buffer{};
    while (true) {
      EXPECT_TRUE(send_all(fd.get(), handshake.take_output(), soon()).is_ok());
      if (handshake.is_done()) return fd;
      const size_t got = receive_some(fd.get(), buffer, soon()).value();
      EXPECT_TRUE(handshake.feed(std::span(buffer).first(got)).is_ok());
    }
  }

  static Code code_at_end_of(int fd) {
    std::array<std::byte, 4096> buffer{};
    while (true) {
      const Result<size_t> got = receive_some(fd, buffer, soon());
      if (!got.is_ok()) return got.status().code;
    }
  }

  Secret secret_ = make_secret().value();
  std::unique_ptr<StoreServer> server_;
};

TEST_F(StoreTcp, what_the_server_puts_reaches_clients_that_wait_for_it_and_later_ones) {
  const auto client = open();
  std::thread putting([&] { server_->put("ended", "now"); });
  EXPECT_EQ(client->get("ended", soon()).value(), "now");
  putting.join();
  EXPECT_EQ(open()->try_get("ended", soon()).value(), "now");
  server_->put("ended", "again");
  server_->put("last", "1");
  EXPECT_EQ(client->get("last", soon()).value(), "1");
  EXPECT_EQ(client->try_get("ended", soon()).value(), "again");
}

TEST_F(StoreTcp, a_wrong_secret_is_refused_at_once) {
  const auto store = open(make_secret().value());
  ASSERT_EQ(store.status().code, Code::kPermissionDenied);
  EXPECT_THAT(store.status().why, HasSubstr(std::to_string(server_->port())));
}

TEST_F(StoreTcp, a_wrong_release_is_refused_at_once_and_both_are_named) {
  const auto store = open(secret_, "job", "2.0");
  ASSERT_EQ(store.status().code, Code::kPermissionDenied);
  EXPECT_THAT(store.status().why, AllOf(HasSubstr("1.0"), HasSubstr("2.0")));
}

TEST_F(StoreTcp, a_client_of_another_job_is_refused) {
  EXPECT_EQ(open(secret_, "another job").status().code, Code::kPermissionDenied);
}

TEST_F(StoreTcp, a_port_in_use_is_unavailable_and_named) {
  const auto second = serve_store("127.0.0.1", server_->port(), "job", secret_, "1.0");
  ASSERT_EQ(second.status().code, Code::kUnavailable);
  EXPECT_THAT(second.status().why, AllOf(HasSubstr(std::to_string(server_->port())), HasSubstr("in use")));
}

TEST_F(StoreTcp, a_client_waits_for_a_server_that_comes_up_later) {
  const int port = server_->port();
  server_.reset();
  Result<std::unique_ptr<Store>> store = Status(Code::kInternal, "never ran");
  std::thread dialer([&] { store = open_tcp_store("127.0.0.1", port, "job", secret_, "1.0", soon()); });
  start(port);
  dialer.join();
  EXPECT_TRUE(store.is_ok());
}

TEST_F(StoreTcp, a_server_that_never_comes_up_is_a_timeout_naming_the_address) {
  const int port = server_->port();
  server_.reset();
  const auto store =
      open_tcp_store("127.0.0.1", port, "job", secret_, "1.0", Deadline::after(20 * kMillisecond));
  ASSERT_EQ(store.status().code, Code::kTimeout);
  EXPECT_THAT(store.status().why, HasSubstr("127.0.0.1:" + std::to_string(port)));
}

TEST_F(StoreTcp, a_connection_broken_between_commands_is_made_again) {
  const auto store = open();
  ASSERT_TRUE(store->set("key", "before", soon()).is_ok());
  const int port = server_->port();
  server_.reset();
  start(port);
  ASSERT_TRUE(store->set("key", "after", soon()).is_ok());
  EXPECT_EQ(store->add("counter", 1, soon()).value(), 1);
}

// An attempt lasts 5 s. A server that a thousand ranks ask at once may need longer.
TEST_F(StoreTcp, a_server_that_lets_an_attempt_pass_is_dialled_again) {
  const auto store = open();
  const int port = server_->port();
  server_.reset();
  UniqueFd listener = listen_on("127.0.0.1", port).value();
  UniqueFd silent;
  std::thread serving([&] {
    for (const Deadline end = soon(); !silent.is_open() && !end.is_past(); sleep_for(kMillisecond))
      silent = accept_caller(listener.get());
    listener.reset();
    start(port);
  });
  EXPECT_TRUE(store->set("key", "late", soon()).is_ok());
  serving.join();
  EXPECT_EQ(open()->try_get("key", soon()).value(), "late");
}

TEST_F(StoreTcp, a_get_under_way_fails_when_the_server_ends) {
  const auto store = open();
  std::atomic<bool> is_waiting{false};
  server_->on_set([&](std::string_view, std::string_view) { is_waiting = true; });
  Result<std::string> got = Status(Code::kInternal, "never ran");
  std::thread waiter([&] {
    EXPECT_TRUE(store->set("started", "", soon()).is_ok());
    got = store->get("never", soon());
  });
  while (!is_waiting) std::this_thread::yield();
  server_.reset();
  waiter.join();
  ASSERT_EQ(got.status().code, Code::kPeerLost);
  EXPECT_THAT(got.status().why, HasSubstr("never"));
}

TEST_F(StoreTcp, the_launcher_sees_every_set) {
  const auto store = open();
  std::string seen;
  server_->on_set([&](std::string_view key, std::string_view value) {
    seen += std::string(key) + "=" + std::string(value) + ";";
  });
  ASSERT_TRUE(store->set("a", "1", soon()).is_ok());
  ASSERT_TRUE(store->add("b", 2, soon()).is_ok());
  ASSERT_TRUE(store->get("a", soon()).is_ok());  // served after both callbacks returned
  server_->on_set(nullptr);
  EXPECT_EQ(seen, "a=1;b=2;");
}

TEST_F(StoreTcp, a_get_given_up_by_its_client_is_forgotten) {
  const auto store = open(), other = open();
  ASSERT_EQ(store->get("late", Deadline::after(kMillisecond)).status().code, Code::kTimeout);
  ASSERT_TRUE(other->set("late", "value", soon()).is_ok());
  EXPECT_EQ(store->get("late", soon()).value(), "value");
}

TEST_F(StoreTcp, a_get_whose_time_is_over_is_answered_and_its_connection_serves_the_next_command) {
  const UniqueFd fd = trusted_raw();
  const auto ask = [&fd](const Command& command) {
    EXPECT_TRUE(send_all(fd.get(), encode(command), soon()).is_ok());
    Bytes in;
    std::array<std::byte, 1'024> buffer{};
    while (in.size() < kLengthBytes || in.size() < message_bytes(in).value()) {
      const Result<size_t> got = receive_some(fd.get(), buffer, soon());
      if (!got.is_ok()) return Reply{.code = got.status().code, .text = got.status().why};
      in.insert(in.end(), buffer.begin(), buffer.begin() + static_cast<ptrdiff_t>(got.value()));
    }
    return decode_reply(std::span<const std::byte>(in).subspan(kLengthBytes)).value();
  };
  EXPECT_EQ(ask({.op = Op::kGet, .key = "late", .value = "", .amount = kMillisecond}).code, Code::kTimeout);
  EXPECT_EQ(ask({.op = Op::kSet, .key = "late", .value = "value"}).code, Code::kOk);
  EXPECT_EQ(ask({.op = Op::kGet, .key = "late", .value = "", .amount = 0}).text, "value");
}

TEST_F(StoreTcp, malformed_messages_of_a_trusted_peer_end_its_connection_only) {
  const auto store = open();
  const std::array<uint32_t, 3> sizes = {0, 0xffffffff, kMaxStoreMessageBytes + 1};
  for (const uint32_t size : sizes) {
    const UniqueFd fd = trusted_raw();
    ByteWriter message;
    message.put(size);
    ASSERT_TRUE(send_all(fd.get(), message.bytes(), soon()).is_ok());
    EXPECT_EQ(code_at_end_of(fd.get()), Code::kPeerLost) << size;
  }
  const UniqueFd fd = trusted_raw();
  ASSERT_TRUE(send_all(fd.get(), with_length(Bytes(9, std::byte{0x77})), soon()).is_ok());
  EXPECT_EQ(code_at_end_of(fd.get()), Code::kPeerLost);
  EXPECT_TRUE(store->set("key", "value", soon()).is_ok());
}

TEST_F(StoreTcp, commands_split_into_single_bytes_are_understood) {
  const UniqueFd fd = trusted_raw();
  const Bytes command = encode(Command{.op = Op::kSet, .key = "key", .value = "value"});
  for (const std::byte& byte : command) ASSERT_TRUE(send_all(fd.get(), {&byte, 1}, soon()).is_ok());
  EXPECT_EQ(open()->get("key", soon()).value(), "value");
}

TEST_F(StoreTcp, a_stranger_that_says_nothing_is_cut_off) {
  const UniqueFd fd = stranger();
  EXPECT_EQ(code_at_end_of(fd.get()), Code::kPeerLost);
}

TEST_F(StoreTcp, a_stranger_that_talks_garbage_is_cut_off) {
  const UniqueFd fd = stranger();
  const std::string_view text = "GET / HTTP/1.1\r\n\r\n";
  ASSERT_TRUE(send_all(fd.get(), std::as_bytes(std::span(text)), soon()).is_ok());
  EXPECT_EQ(code_at_end_of(fd.get()), Code::kPeerLost);
}

// Raises the soft limit on descriptors for one test.
class DescriptorLimit {
 public:
  explicit DescriptorLimit(rlim_t limit) {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit now{std::min(limit, before_.rlim_max), before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &now);
  }
  ~DescriptorLimit() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

TEST_F(StoreTcp, two_thousand_silent_and_garbage_connections_do_not_keep_ranks_out) {
  const DescriptorLimit limit(4096);
  std::vector<UniqueFd> strangers;
  for (int i = 0; i < 2000; ++i) {
    strangers.push_back(stranger());
    const std::array<std::byte, 64> garbage{};
    if (i % 2 == 0) {
      [[maybe_unused]] const Status sent = send_all(strangers.back().get(), garbage, soon());
    }
  }
  const auto store = open();
  ASSERT_TRUE(store->set("key", "value", soon()).is_ok());
  EXPECT_EQ(open()->get("key", soon()).value(), "value");
}

TEST_F(StoreTcp, running_out_of_descriptors_is_survived) {
  const auto store = open();
  {
    const DescriptorLimit limit(200);
    const auto address = resolve("127.0.0.1", server_->port()).value().front();
    std::vector<UniqueFd> strangers;
    while (true) {  // ends when this process, which is also the server's, has no descriptor left
      Result<UniqueFd> fd = connect_to(address, soon());
      if (!fd.is_ok()) break;
      strangers.push_back(std::move(fd).value());
      ASSERT_LT(strangers.size(), 400u);
    }
    EXPECT_TRUE(store->set("during", "value", soon()).is_ok());
  }
  EXPECT_EQ(open()->get("during", soon()).value(), "value");
}

TEST_F(StoreTcp, the_server_listens_on_the_chosen_address_only) {
  EXPECT_EQ(server_->url(), "tcp://127.0.0.1:" + std::to_string(server_->port()));
  const auto elsewhere = resolve("127.0.0.2", server_->port()).value().front();
  EXPECT_EQ(connect_to(elsewhere, soon()).status().code, Code::kUnavailable);
}

}  // namespace
}  // namespace rueda::store::tcp_test
