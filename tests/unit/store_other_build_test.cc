// A launcher, a library or a host of another build of rueda: both ends of the store say so at once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <thread>

#include "../soon.h"
#include "rueda/store/ended.h"
#include "rueda/store/entries.h"
#include "rueda/store/hex.h"
#include "rueda/store/job_id.h"
#include "rueda/store/members.h"
#include "rueda/store/messages.h"
#include "rueda/store/other_build.h"
#include "rueda/store/relay_frame.h"
#include "rueda/store/socket.h"
#include "rueda/store/tcp_store.h"
#include "rueda/store/world.h"

namespace rueda::store::other_build_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint16_t kNext = kStoreProtocol + 1;

TEST(OtherBuild, the_sentence_names_both_sides_and_what_to_do) {
  const SpokenVersion mine{.release = "1.0", .protocol = 3}, other{.release = "1.0", .protocol = 2};
  EXPECT_EQ(other_build({"rank 1 on b", mine}, {"the launcher's store at tcp://h:1", other}, kUseItsLauncher),
            "rank 1 on b runs rueda 1.0 with store protocol 3, but the launcher's store at tcp://h:1 is of "
            "rueda 1.0 with store protocol 2; start the job with the `rueda` command of the installation "
            "that its ranks load");
}

TEST(OtherBuild, of_another_wire_version_or_release_no_store_protocol_is_known) {
  const SpokenVersion mine{.wire = 2, .release = "1.0", .protocol = 3}, older{.wire = 1, .release = "1.0"};
  EXPECT_THAT(other_build({"a", mine}, {"b", older}, ""),
              AllOf(HasSubstr("a runs rueda 1.0 with wire version 2"),
                    HasSubstr("b is of rueda 1.0 with wire version 1")));
  const SpokenVersion release{.wire = 2, .release = "0.9"};
  EXPECT_THAT(other_build({"a", mine}, {"b", release}, ""),
              HasSubstr("b is of rueda 0.9 with wire version 2"));
}

// What a client and a store of protocol 2 say. If this fails because a message has changed, raise
// kStoreProtocol in messages.h, and write the new number and the new bytes here: a launcher and a library of
// different builds would otherwise wait for each other.
TEST(OtherBuild, the_messages_of_the_store_are_those_of_this_protocol_number) {
  EXPECT_EQ(kStoreProtocol, 2);
  std::string said;
  for (int op = 1; op <= 9; ++op) {
    const Command command{
        .op = static_cast<Op>(op), .key = "k", .value = "v", .amount = 5, .expected = "e", .limit = 6};
    said += to_hex(encode(command)) + "\n";
  }
  said += to_hex(encode(Reply{.code = Code::kTimeout, .text = "t", .sum = 7})) + "\n";
  Bytes frames;
  append_frames(frames, 8, encode(Reply{}));
  said += to_hex(frames) + "\n";
  const std::string entries = encode_entries({{1, "one"}, {2, "two"}});
  said += to_hex(std::as_bytes(std::span(entries))) + "\n";
  said += format_ended({.size = 3, .rank = 1, .how = "h", .pid = 7}) + "\n";
  EXPECT_EQ(said,
            "1300000001010000006b01000000760500000000000000\n"
            "1300000002010000006b01000000760500000000000000\n"
            "1300000003010000006b01000000760500000000000000\n"
            "1300000004010000006b01000000760500000000000000\n"
            "1300000005010000006b01000000760500000000000000\n"
            "1800000006010000006b010000007605000000000000000100000065\n"
            "1b00000007010000006b010000007605000000000000000600000000000000\n"
            "1b00000008010000006b010000007605000000000000000600000000000000\n"
            "1b00000009010000006b010000007605000000000000000600000000000000\n"
            "0e0000000701000000740700000000000000\n"
            "11000000080000000d00000000000000000000000000000000\n"
            "0200000001000000030000006f6e65020000000300000074776f\n"
            "3 1 7 h\n");
  Bytes unknown = encode(Command{.op = static_cast<Op>(10), .key = "k", .value = "v", .limit = 6});
  EXPECT_FALSE(decode_command(std::span<const std::byte>(unknown).subspan(kLengthBytes)).is_ok())
      << "a new command needs a new number";
}

// A store of another build: it shakes hands with everybody, and refuses them. protocol 0: it is of the wire
// version before the number was there, and proves nothing.
class OtherStore {
 public:
  OtherStore(const std::string& job, Secret secret, uint16_t protocol, UniqueFd listener)
      : secret_(std::move(secret)), listener_(std::move(listener)) {
    accepted_ = {.job = job, .kind = ConnectionKind::kStore, .protocol = protocol};
    thread_ = std::jthread([this](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        const UniqueFd fd = accept_caller(listener_.get());
        if (fd.is_open())
          talk(fd.get());
        else
          usleep(1000);
      }
    });
  }
  [[nodiscard]] int port() const { return own_address(listener_.get()).port(); }

 private:
  void talk(int fd) {
    std::array<std::byte, kMaxHandshakeBytes> buffer{};
    Handshake handshake = Handshake::server(secret_, accepted_, "1.0");
    while (true) {
      const Result<size_t> got = receive_some(fd, buffer, Deadline::after(5 * kSecond));
      if (!got.is_ok()) return;
      const bool is_refused = !handshake.feed(std::span(buffer).first(got.value())).is_ok();
      Bytes out = handshake.take_output();
      if (accepted_.protocol == 0) {
        ByteWriter body, message;
        body.put(uint16_t{1});
        body.put_string("1.0");
        body.put(HandshakeOutcome::kWrongVersion);
        message.put(uint32_t{0x31445552});
        message.put(uint8_t{2});
        message.put(static_cast<uint16_t>(body.bytes().size()));
        message.put_raw(body.bytes());
        out = std::move(message).take();
      }
      if (!send_all(fd, out, Deadline::after(5 * kSecond)).is_ok() || is_refused) return;
      if (accepted_.protocol == 0) return;
    }
  }

  const Secret secret_;
  ConnectionIdentity accepted_;
  UniqueFd listener_;
  std::jthread thread_;  // the last member
};

class StoreOfOtherBuild : public ::testing::TestWithParam<uint16_t> {
 protected:
  [[nodiscard]] TcpSite site(int port) const {
    return {.host = "127.0.0.1",
            .port = port,
            .job = "job",
            .secret = secret_,
            .release = "1.0",
            .caller = "rank 1 on b",
            .rank = 1};
  }
  // As open_rendezvous() of rank 1 in this job says it.
  Status refused(World world) {
    world.rank = 1;
    world.size = 2;
    world.local_rank = world.local_size = -1;
    world.host = "b";
    return open_rendezvous(world, "", "1.0", soon()).status();
  }
  void expect_named(const Status& status) const {
    EXPECT_EQ(status.code, Code::kPermissionDenied);
    EXPECT_THAT(status.why, AllOf(HasSubstr("rank 1 on b runs rueda 1.0 with "),
                                  HasSubstr(" is of rueda 1.0 with "), HasSubstr("; ")));
    const std::string of_it = GetParam() == 0 ? "with wire version 1" : "with store protocol 3";
    EXPECT_THAT(status.why, HasSubstr(of_it));
  }

  Secret secret_ = make_secret().value();
};

INSTANTIATE_TEST_SUITE_P(Every, StoreOfOtherBuild, ::testing::Values(uint16_t{0}, kNext),
                         [](const auto& one) {
                           return one.param == 0 ? "before_the_number" : "another_number";
                         });

TEST_P(StoreOfOtherBuild, is_named_to_a_client_that_would_wait_for_it) {
  const OtherStore store("job", secret_, GetParam(), listen_on("127.0.0.1", 0).value());
  expect_named(open_tcp_store(site(store.port()), soon()).status());
}

TEST_P(StoreOfOtherBuild, is_named_to_the_rank_that_would_relay_and_to_the_next_one) {
  const OtherStore store("job", secret_, GetParam(), listen_on("127.0.0.1", 0).value());
  for (int rank = 0; rank < 2; ++rank) {
    HandshakeOutcome refused{};
    expect_named(dial_store_of_host(site(store.port()), soon(), refused).status());
    EXPECT_TRUE(is_other_build(refused));
  }
}

TEST_P(StoreOfOtherBuild, of_a_launcher_or_of_rank_0_ends_the_search) {
  std::string pattern = std::filesystem::temp_directory_path() / "rueda-other-XXXXXX";
  const std::string root = mkdtemp(pattern.data());
  World world;
  world.secret_file = root + "/secret";
  ASSERT_TRUE(write_secret_file(world.secret_file, secret_).is_ok());
  world.job = "job";
  const OtherStore store("job", secret_, GetParam(), listen_on("127.0.0.1", 0).value());
  world.method = World::Method::kUrl;
  world.url = "tcp://127.0.0.1:" + std::to_string(store.port());
  for (const bool is_launchers : {true, false}) {
    world.is_store_served = is_launchers;
    const Status status = refused(world);
    expect_named(status);
    EXPECT_THAT(status.why,
                HasSubstr(is_launchers ? "the launcher's store at tcp://" : "the store at tcp://"));
  }
  std::filesystem::remove_all(root);
}

// Nobody has given the ranks a secret. The store has proved that it knows the key of the user, so it is of no
// other user's job of this name.
TEST(StoreAtSeed, of_another_build_on_a_seed_port_is_believed_with_the_key_of_the_user) {
  std::string pattern = std::filesystem::temp_directory_path() / "rueda-other-XXXXXX";
  const std::string root = mkdtemp(pattern.data());
  setenv("XDG_CONFIG_HOME", (root + "/config").c_str(), 1);
  World world;
  world.rank = 1;
  world.size = 2;
  world.local_rank = world.local_size = -1;
  world.host = "b";
  world.seed_host = "127.0.0.1";
  world.method = World::Method::kSeed;
  std::unique_ptr<OtherStore> store;
  for (int i = 0; i < 20 && !store; ++i) {
    world.job = "other" + root.substr(root.rfind('-')) + std::to_string(i);
    Result<UniqueFd> listener = listen_on("127.0.0.1", seed_ports(world.job)[0]);
    if (listener.is_ok())
      store = std::make_unique<OtherStore>(world.job, secret_of(world).value(), kNext,
                                           std::move(listener).value());
  }
  ASSERT_NE(store, nullptr);
  const Status status = open_rendezvous(world, "", "1.0", soon()).status();
  EXPECT_EQ(status.code, Code::kPermissionDenied);
  EXPECT_THAT(status.why, HasSubstr("with store protocol 3"));
  std::filesystem::remove_all(root);
}

class RankOfOtherBuild : public ::testing::Test {
 protected:
  // What the client of that build hears, or an empty sentence.
  std::string dial(const Secret& secret, Rank rank) {
    const UniqueFd fd = connect_to(resolve("127.0.0.1", server_->port()).value().front(), soon()).value();
    const ConnectionIdentity mine{
        .job = "job", .kind = ConnectionKind::kStore, .from = rank, .protocol = kNext};
    Handshake handshake = Handshake::client(secret, mine, "1.0");
    std::array<std::byte, kMaxHandshakeBytes> buffer{};
    while (!handshake.is_done()) {
      EXPECT_TRUE(send_all(fd.get(), handshake.take_output(), soon()).is_ok());
      const Result<size_t> got = receive_some(fd.get(), buffer, soon());
      if (!got.is_ok()) return got.status().why;
      const Result<size_t> taken = handshake.feed(std::span(buffer).first(got.value()));
      if (taken.is_ok()) continue;
      EXPECT_TRUE(send_all(fd.get(), handshake.take_output(), soon()).is_ok());
      return taken.status().why;
    }
    return "";
  }
  std::string refusal_heard() {
    const Deadline deadline = soon();
    while (server_->last_refusal().empty() && !deadline.is_past()) usleep(1000);
    return server_->last_refusal();
  }

  Secret secret_ = make_secret().value();
  std::unique_ptr<StoreServer> server_ = serve_store("127.0.0.1", 0, "job", secret_, "1.0").value();
};

TEST_F(RankOfOtherBuild, is_named_by_the_store_with_its_rank_and_its_host) {
  const Nanos began = monotonic_now();
  EXPECT_THAT(dial(secret_, 4), HasSubstr("this side speaks store protocol 3, the peer 2"));
  EXPECT_THAT(
      refusal_heard(),
      AllOf(HasSubstr("rank 4 on 127.0.0.1 runs rueda 1.0 with store protocol 3, but this store "),
            HasSubstr("is of rueda 1.0 with store protocol 2; start the job with the `rueda` command")));
  EXPECT_EQ(server_->other_build_since(began), server_->last_refusal());
  EXPECT_EQ(server_->other_build_since(monotonic_now() + kSecond), "") << "it came before this init";
}

TEST_F(RankOfOtherBuild, is_believed_only_if_it_knows_the_secret) {
  EXPECT_THAT(dial(make_secret().value(), 4), HasSubstr("does not know the secret"));
  EXPECT_THAT(refusal_heard(), HasSubstr("does not know the secret"));
  EXPECT_EQ(server_->other_build_since(0), "");
}

TEST_F(RankOfOtherBuild, of_the_wire_version_before_the_number_is_named_but_ends_no_init) {
  const UniqueFd fd = connect_to(resolve("127.0.0.1", server_->port()).value().front(), soon()).value();
  ByteWriter body, message;
  body.put(uint16_t{1});
  body.put_string("1.0");
  message.put(uint32_t{0x31445552});
  message.put(uint8_t{1});
  message.put(static_cast<uint16_t>(body.bytes().size()));
  message.put_raw(body.bytes());
  ASSERT_TRUE(send_all(fd.get(), message.bytes(), soon()).is_ok());
  EXPECT_THAT(refusal_heard(), HasSubstr("a process on 127.0.0.1 runs rueda 1.0 with wire version 1, but "));
  EXPECT_EQ(server_->other_build_since(0), "");
}

}  // namespace
}  // namespace rueda::store::other_build_test
