// The relay through which the ranks of a host share one connection to a store.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <thread>

#include "../soon.h"
#include "rueda/store/entries.h"
#include "rueda/store/host_relay.h"
#include "rueda/store/relay_frame.h"
#include "rueda/store/socket.h"
#include "rueda/store/tcp_store.h"

namespace rueda::store::relay_test {
namespace {

using ::testing::HasSubstr;

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

TEST(RelayFrame, bytes_of_any_length_arrive_as_frames_of_their_client) {
  for (const size_t size : {size_t{0}, size_t{1}, kMaxFrameBytes, kMaxFrameBytes + 1, 3 * kMaxFrameBytes}) {
    const std::string sent(size, 'x');
    Bytes raw;
    append_frames(raw, 7, bytes_of(sent));
    std::string got;
    size_t used = 0, frames = 0;
    while (used < raw.size()) {
      const auto frame = first_frame(std::span<const std::byte>(raw).subspan(used)).value();
      ASSERT_TRUE(frame);
      EXPECT_EQ(frame->client, 7u);
      got.append(reinterpret_cast<const char*>(frame->bytes.data()), frame->bytes.size());
      used += frame->size();
      ++frames;
    }
    EXPECT_EQ(got, sent);
    EXPECT_EQ(frames, std::max<size_t>(1, (size + kMaxFrameBytes - 1) / kMaxFrameBytes));
  }
}

TEST(RelayFrame, a_part_of_one_is_none_and_one_that_is_too_long_is_refused) {
  Bytes raw;
  append_frames(raw, 1, bytes_of("four"));
  for (size_t size = 0; size < raw.size(); ++size)
    EXPECT_FALSE(first_frame(std::span<const std::byte>(raw).first(size)).value()) << size;
  ByteWriter huge;
  huge.put(static_cast<uint32_t>(kMaxFrameBytes + 1));
  huge.put(uint32_t{1});
  EXPECT_FALSE(first_frame(huge.bytes()).is_ok());
}

class HostRelayOfStore : public ::testing::Test {
 protected:
  [[nodiscard]] TcpSite site() const { return {"127.0.0.1", server_->port(), "job", secret_, "1.0"}; }
  Result<std::unique_ptr<Store>> dial(const TcpSite& where) {
    HandshakeOutcome refused{};
    return dial_store_of_host(where, soon(), refused);
  }
  std::unique_ptr<Store> client() { return dial(site()).value(); }

  // Of this process, that lead to the server.
  [[nodiscard]] int connections() const {
    std::ifstream table("/proc/self/net/tcp");
    std::array<char, 8> port{};
    std::snprintf(port.data(), port.size(), ":%04X", static_cast<unsigned>(server_->port()));
    int count = 0;
    std::string line, number, local, remote, state;
    while (std::getline(table, line)) {
      std::istringstream words(line);
      words >> number >> local >> remote >> state;
      if (remote.ends_with(port.data()) && state == "01") ++count;
    }
    return count;
  }

  Secret secret_ = make_secret().value();
  std::unique_ptr<StoreServer> server_ = serve_store("127.0.0.1", 0, "job", secret_, "1.0").value();
};

TEST_F(HostRelayOfStore, all_clients_of_a_host_share_one_connection) {
  std::vector<std::unique_ptr<Store>> clients;
  for (int i = 0; i < 20; ++i) clients.push_back(client());
  for (size_t i = 0; i < clients.size(); ++i)
    ASSERT_TRUE(clients[i]->set("rank" + std::to_string(i), std::to_string(i), soon()).is_ok());
  EXPECT_EQ(clients.front()->get("rank19", soon()).value(), "19");
  EXPECT_EQ(connections(), 1);
}

TEST_F(HostRelayOfStore, a_client_that_waits_keeps_no_other_one_waiting) {
  const std::unique_ptr<Store> first = client(), second = client(), third = client();
  std::vector<std::string> got(2);
  std::thread one([&] { got[0] = first->get("a", soon()).value(); });
  std::thread two([&] { got[1] = second->get("b", soon()).value(); });
  ASSERT_TRUE(third->set("b", "two", soon()).is_ok());
  two.join();
  ASSERT_TRUE(third->set("a", "one", soon()).is_ok());
  one.join();
  EXPECT_THAT(got, ::testing::ElementsAre("one", "two"));
}

TEST_F(HostRelayOfStore, clients_dial_the_store_when_the_process_that_relays_has_gone) {
  std::unique_ptr<Store> relays = client();
  const std::unique_ptr<Store> left = client();
  ASSERT_TRUE(left->set("key", "before", soon()).is_ok());
  relays.reset();
  EXPECT_EQ(left->get("key", soon()).value(), "before");
  ASSERT_TRUE(left->set("key", "after", soon()).is_ok());
  const std::unique_ptr<Store> relays_now = client(), behind_it = client();
  EXPECT_EQ(behind_it->get("key", soon()).value(), "after");
  EXPECT_EQ(connections(), 2);
}

TEST_F(HostRelayOfStore, a_client_that_has_disconnected_joins_the_relay_again) {
  const std::unique_ptr<Store> relays = client(), other = client();
  ASSERT_TRUE(other->set("key", "before", soon()).is_ok());
  for (Store* const each : {relays.get(), other.get()}) {
    each->disconnect();
    each->disconnect();
  }
  EXPECT_EQ(connections(), 1);  // of the relay
  EXPECT_EQ(other->get("key", soon()).value(), "before");
  ASSERT_TRUE(relays->give({.table = "t/", .rank = 0, .value = "zero", .host_size = 1}, soon()).is_ok());
  EXPECT_EQ(connections(), 1);
}

TEST_F(HostRelayOfStore, a_client_that_has_disconnected_dials_the_store_when_the_relay_has_gone) {
  std::unique_ptr<Store> relays = client();
  const std::unique_ptr<Store> left = client();
  left->disconnect();
  relays.reset();
  EXPECT_EQ(connections(), 0);
  ASSERT_TRUE(left->set("key", "after", soon()).is_ok());
  EXPECT_EQ(connections(), 1);
}

TEST_F(HostRelayOfStore, a_client_of_the_store_itself_that_has_disconnected_dials_again) {
  const std::unique_ptr<Store> direct = open_tcp_store(site(), soon()).value();
  EXPECT_EQ(direct->add("count", 2, soon()).value(), 2);
  direct->disconnect();
  EXPECT_EQ(connections(), 0);
  EXPECT_EQ(direct->add("count", 3, soon()).value(), 5);
  EXPECT_EQ(connections(), 1);
}

TEST_F(HostRelayOfStore, add_which_cannot_be_repeated_does_not_depend_on_the_process_that_relays) {
  const std::unique_ptr<Store> relays = client(), counts = client();
  EXPECT_EQ(counts->add("counter", 1, soon()).value(), 1);
  EXPECT_EQ(connections(), 2) << "one of its own";
  EXPECT_EQ(counts->add("counter", 1, soon()).value(), 2);
  EXPECT_EQ(connections(), 2);
}

TEST_F(HostRelayOfStore, entries_are_there_when_the_process_that_relays_ends_before_it_writes) {
  std::unique_ptr<Store> relays = client();
  const std::unique_ptr<Store> gives = client();
  std::thread given([&] { EXPECT_TRUE(gives->give({"t/", 3, "three", 64}, soon()).is_ok()); });
  relays.reset();  // whether it has the entry or not
  given.join();
  EXPECT_EQ(decode_entries(gives->get("t/rank3", soon()).value()).value(), (Entries{{3, "three"}}));
}

TEST_F(HostRelayOfStore, what_many_clients_read_comes_from_the_store_once) {
  std::vector<std::unique_ptr<Store>> clients;
  for (int i = 0; i < 20; ++i) clients.push_back(client());
  const int64_t before = server_->commands();
  ASSERT_TRUE(clients.front()->set("table", std::string(500'000, 'x'), soon()).is_ok());
  for (const auto& one : clients)
    EXPECT_EQ(one->get_shared("table", kAnyAge, soon()).value().size(), 500'000u);
  EXPECT_EQ(server_->commands() - before, 2);
}

TEST_F(HostRelayOfStore, a_client_that_has_gone_is_forgotten_and_its_wait_as_well) {
  const std::unique_ptr<Store> relays = client();
  for (int i = 0; i < 50; ++i) {
    const std::unique_ptr<Store> leaves = client();
    EXPECT_EQ(leaves->get("never", Deadline::after(kMillisecond)).status().code, Code::kTimeout);
  }
  ASSERT_TRUE(relays->set("never", "late", soon()).is_ok());
  EXPECT_EQ(relays->get("never", soon()).value(), "late");
}

TEST_F(HostRelayOfStore, where_somebody_holds_the_socket_and_does_not_answer_ranks_dial_the_store) {
  const UniqueFd squatter = bind_host_relay(site()).value();
  const std::unique_ptr<Store> direct = client();
  ASSERT_TRUE(direct->set("key", "value", soon()).is_ok());
}

TEST_F(HostRelayOfStore, another_secret_or_release_is_refused_by_the_store) {
  const std::unique_ptr<Store> relays = client();
  TcpSite other = site();
  other.secret = make_secret().value();
  EXPECT_EQ(dial(other).status().code, Code::kPermissionDenied);
  other = site();
  other.release = "2.0";
  EXPECT_EQ(dial(other).status().code, Code::kPermissionDenied);
}

TEST_F(HostRelayOfStore, strangers_at_the_relay_do_no_harm) {
  const std::unique_ptr<Store> relays = client();
  std::vector<UniqueFd> strangers;
  for (int i = 0; i < 600; ++i) {
    Result<UniqueFd> made = dial_host_relay(site(), soon());
    if (!made.is_ok()) continue;  // the relay has closed an older one meanwhile
    [[maybe_unused]] const Status sent = send_all(made.value().get(), bytes_of("garbage"), soon());
    strangers.push_back(std::move(made).value());
  }
  const std::unique_ptr<Store> comes = client();
  ASSERT_TRUE(comes->set("key", "value", soon()).is_ok());
  EXPECT_EQ(relays->get("key", soon()).value(), "value");
}

TEST_F(HostRelayOfStore, when_the_store_ends_its_clients_hear_so) {
  const std::unique_ptr<Store> one = client(), other = client();
  server_.reset();
  for (const auto& client : {one.get(), other.get()})
    EXPECT_THAT(client->set("key", "value", Deadline::after(kSecond)).why,
                HasSubstr("the process that serves it"));
}

}  // namespace
}  // namespace rueda::store::relay_test
