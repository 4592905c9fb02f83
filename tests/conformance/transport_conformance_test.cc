// What every transport must do. A new transport joins with one more name at the end of this file.
#include <numeric>

#include "transport_world.h"

namespace rueda::transport::testing::conformance_test {
namespace {

class Conformance : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (const std::string why = why_skipped(GetParam()); !why.empty()) GTEST_SKIP() << why;
  }
  [[nodiscard]] bool is_sim() const { return GetParam().starts_with("sim"); }
};

// Sends messages of the given sizes from a to b and checks what arrives; tickets from base upwards.
void exchange(World& world, Rank a, Rank b, const std::vector<size_t>& sizes, bool is_both_ways) {
  struct Way {
    Rank from, to;
    std::vector<Bytes> sent, received;
  };
  std::vector<Way> ways{{a, b, {}, {}}};
  if (is_both_ways) ways.push_back({b, a, {}, {}});
  constexpr Ticket kSend = 1000, kRecv = 2000;
  for (Way& way : ways) {
    for (size_t i = 0; i < sizes.size(); ++i) {
      way.sent.push_back(pattern(sizes[i], i + 100 * static_cast<size_t>(way.from)));
      way.received.emplace_back(sizes[i]);
    }
  }
  for (Way& way : ways) {
    for (size_t i = 0; i < sizes.size(); ++i) {
      world.end(way.from, way.to).send(kSend + i, way.sent[i]);
      world.end(way.to, way.from).recv(kRecv + i, way.received[i]);
    }
  }
  ASSERT_TRUE(world.pump_until([&] {
    for (const Way& way : ways) {
      for (size_t i = 0; i < sizes.size(); ++i) {
        if (!world.is_done(way.from, kSend + i) || !world.is_done(way.to, kRecv + i)) return false;
      }
    }
    return true;
  }));
  for (const Way& way : ways) {
    for (size_t i = 0; i < sizes.size(); ++i) {
      EXPECT_TRUE(world.status_of(way.from, kSend + i).is_ok());
      EXPECT_TRUE(world.status_of(way.to, kRecv + i).is_ok());
      EXPECT_TRUE(way.received[i] == way.sent[i]) << "message " << i << " of " << sizes[i] << " bytes";
    }
  }
}

TEST_P(Conformance, messages_arrive_in_order_whatever_their_sizes) {
  World world(GetParam(), 2);
  world.connect_all();
  exchange(world, 0, 1, {0, 1, 63, 64, 65, 0, 0, 4096, 3, 100'000, 1 << 20, 7, 300'001, 0}, false);
}

TEST_P(Conformance, both_directions_at_once_do_not_block_each_other) {
  World world(GetParam(), 2);
  world.connect_all();
  exchange(world, 0, 1, {5'000'000, 1, 3'000'001, 0, 64}, true);
}

TEST_P(Conformance, sixty_four_mebibytes_pass) {
  World world(GetParam(), 2);
  world.connect_all();
  exchange(world, 1, 0, {64 << 20}, false);
}

TEST_P(Conformance, a_receive_posted_late_finds_its_message) {
  World world(GetParam(), 2);
  world.connect_all();
  const Bytes sent = pattern(1000, 5);
  Bytes received(1000);
  world.end(0, 1).send(1, sent);
  for (int i = 0; i < 20; ++i) world.pump();
  world.end(1, 0).recv(2, received);
  ASSERT_TRUE(world.pump_until([&] { return world.is_done(0, 1) && world.is_done(1, 2); }));
  EXPECT_TRUE(sent == received);
}

TEST_P(Conformance, receives_can_be_withdrawn_until_their_message_begins) {
  World world(GetParam(), 2);
  world.connect_all();
  const Bytes sent[] = {pattern(1000, 1), pattern(8 << 20, 2), pattern(500, 3)};
  Bytes first(1000), never(77), third(500);
  Collector second(sent[1].size(), 4);
  Endpoint& from = world.end(0, 1);
  Endpoint& to = world.end(1, 0);
  to.recv(1, first);
  to.recv_into(2, sent[1].size(), 4, second);
  to.recv(3, never);
  to.recv(4, never);
  from.send(1, sent[0]);
  from.send(2, sent[1]);
  ASSERT_TRUE(world.pump_until([&] { return !second.seen.empty(); }));
  ASSERT_LT(second.seen.size(), sent[1].size());
  EXPECT_EQ(to.withdraw(1), 1u);
  EXPECT_EQ(to.withdraw(9), 1u) << "one is complete, one has begun";
  EXPECT_EQ(to.withdraw(9), 0u);
  from.send(3, sent[2]);
  ASSERT_TRUE(world.pump_until([&] { return world.is_done(1, 2); }));
  for (int i = 0; i < 20; ++i) world.pump();
  to.recv(5, third);
  ASSERT_TRUE(world.pump_until([&] { return world.is_done(1, 5) && world.is_done(0, 3); }));
  EXPECT_TRUE(first == sent[0] && second.seen == sent[1] && third == sent[2]);
  EXPECT_FALSE(world.is_done(1, 3) || world.is_done(1, 4));
}

TEST_P(Conformance, a_consumer_sees_every_byte_once_in_whole_units) {
  World world(GetParam(), 2);
  world.connect_all();
  Ticket ticket = 1;
  for (const size_t unit_bytes : {1, 2, 4, 8, 24, 96, 4096}) {
    for (const size_t count : {size_t{0}, size_t{1}, size_t{3}, 400'000 / unit_bytes}) {
      const size_t bytes = unit_bytes * count;
      const Bytes sent = pattern(bytes, unit_bytes);
      Collector collector(bytes, unit_bytes);
      world.end(0, 1).send(ticket, sent);
      world.end(1, 0).recv_into(ticket, bytes, unit_bytes, collector);
      ASSERT_TRUE(world.pump_until([&] { return world.is_done(0, ticket) && world.is_done(1, ticket); }));
      EXPECT_TRUE(world.status_of(1, ticket).is_ok());
      EXPECT_TRUE(collector.seen == sent) << "unit " << unit_bytes << ", " << bytes << " bytes";
      ++ticket;
    }
  }
}

TEST_P(Conformance, a_round_trip_is_known_as_soon_as_the_channel_is_up_or_never) {
  World world(GetParam(), 2);
  world.connect_all();
  const bool is_counted = GetParam() == "tcp";
  for (const auto& [from, to] : {std::pair(0, 1), std::pair(1, 0)}) {
    EXPECT_EQ(world.end(from, to).round_trip() > 0, is_counted);
    EXPECT_LT(world.end(from, to).round_trip(), 30 * kSecond);
  }
}

TEST_P(Conformance, four_ranks_talk_over_two_channels_each) {
  World world(GetParam(), 4, 11);
  world.connect_all(2);
  constexpr int kMessages = 20;
  std::vector<Bytes> sent, received;
  sent.reserve(2000);
  received.reserve(2000);
  std::vector<std::pair<Rank, Ticket>> open;
  Ticket ticket = 1;
  for (int i = 0; i < kMessages; ++i) {
    for (Rank a = 0; a < 4; ++a) {
      for (Rank b = 0; b < 4; ++b) {
        for (uint16_t channel = 0; a != b && channel < 2; ++channel) {
          sent.push_back(pattern(static_cast<size_t>(i * 997), ticket));
          received.emplace_back(sent.back().size());
          world.end(a, b, channel).send(ticket, sent.back());
          open.emplace_back(a, ticket++);
          world.end(b, a, channel).recv(ticket, received.back());
          open.emplace_back(b, ticket++);
        }
      }
    }
  }
  ASSERT_TRUE(world.pump_until([&] {
    while (!open.empty() && world.is_done(open.back().first, open.back().second)) open.pop_back();
    return open.empty();
  }));
  EXPECT_TRUE(sent == received);
}

TEST_P(Conformance, a_wrong_size_is_found_by_the_receiver_and_ends_the_channel_at_both_ends) {
  World world(GetParam(), 2);
  world.connect_all();
  const Bytes sent = pattern(100'000, 5);
  Bytes received(60'000), more(10);
  world.end(0, 1).send(1, sent);
  world.end(1, 0).recv(2, received);
  world.end(0, 1).recv(3, more);
  ASSERT_TRUE(world.pump_until([&] { return world.is_done(1, 2) && world.is_done(0, 3); }));
  const Status status = world.status_of(1, 2);
  EXPECT_EQ(status.code, Code::kMismatch);
  EXPECT_NE(status.why.find("rank 0"), std::string::npos) << status.why;
  EXPECT_NE(status.why.find("100000"), std::string::npos) << status.why;
  EXPECT_NE(status.why.find("60000"), std::string::npos) << status.why;
  EXPECT_FALSE(world.status_of(0, 3).is_ok());
  ASSERT_EQ(world.losses(0).size(), 1u);
  ASSERT_EQ(world.losses(1).size(), 1u);
}

TEST_P(Conformance, peer_death_fails_all_tickets_at_once_and_names_the_rank) {
  World world(GetParam(), 3);
  world.connect_all();
  const Bytes sent = pattern(8 << 20, 5);
  Bytes received(1000), other(1000);
  world.end(0, 2).recv(1, received);
  world.end(0, 2).recv(2, received);
  world.end(0, 1).recv(4, other);
  if (GetParam() != "sim_buffered") world.end(0, 2).send(3, sent);
  for (int i = 0; i < 5; ++i) world.pump();
  world.kill(2);
  ASSERT_TRUE(
      world.pump_until([&] { return world.is_done(0, 1) && world.is_done(0, 2) && !world.losses(1).empty(); },
                       20 * kSecond));  // the silence of a rank would be noticed after 30 s
  EXPECT_EQ(world.status_of(0, 1).code, Code::kPeerLost);
  EXPECT_NE(world.status_of(0, 2).why.find("rank 2"), std::string::npos) << world.status_of(0, 2).why;
  if (GetParam() != "sim_buffered") {
    ASSERT_TRUE(world.pump_until([&] { return world.is_done(0, 3); }));
    EXPECT_FALSE(world.status_of(0, 3).is_ok());
  }
  ASSERT_EQ(world.losses(0).size(), 1u);
  EXPECT_EQ(world.losses(0)[0].peer, 2);
  EXPECT_FALSE(world.is_done(0, 4)) << "the channel to rank 1 is well";
  // What is posted afterwards fails too.
  world.end(0, 2).send(9, sent);
  ASSERT_TRUE(world.pump_until([&] { return world.is_done(0, 9); }));
  EXPECT_EQ(world.status_of(0, 9).code, Code::kPeerLost);
}

TEST_P(Conformance, bytes_sent_before_a_good_end_can_still_be_read) {
  World world(GetParam(), 2);
  world.connect_all();
  const Bytes sent = pattern(10'000, 5);
  Bytes received(10'000), more(1);
  Bytes kept(10'000);
  world.end(0, 1).send(1, sent);
  if (is_sim()) world.end(1, 0).recv(2, received);  // the simulator loses what was under way
  ASSERT_TRUE(world.pump_until([&] { return world.is_done(0, 1) && (!is_sim() || world.is_done(1, 2)); }));
  world.kill(0);
  for (int i = 0; i < 5; ++i) world.pump();
  if (!is_sim()) world.end(1, 0).recv(2, received);
  world.end(1, 0).recv(3, more);
  ASSERT_TRUE(world.pump_until([&] { return world.is_done(1, 2) && world.is_done(1, 3); }));
  EXPECT_TRUE(world.status_of(1, 2).is_ok()) << world.status_of(1, 2).why;
  EXPECT_TRUE(sent == received);
  EXPECT_EQ(world.status_of(1, 3).code, Code::kPeerLost);
}

TEST_P(Conformance, abort_completes_open_tickets_with_its_reason_and_the_peer_sees_a_loss) {
  World world(GetParam(), 2);
  world.connect_all();
  Bytes received(1000);
  world.end(0, 1).recv(1, received);
  world.end(1, 0).recv(2, received);
  for (int i = 0; i < 5; ++i) world.pump();
  world.at(0).abort({Code::kShutDown, "rank 0 was told to stop."});
  ASSERT_TRUE(world.pump_until([&] { return world.is_done(0, 1) && world.is_done(1, 2); }));
  EXPECT_EQ(world.status_of(0, 1).why, "rank 0 was told to stop.");
  EXPECT_EQ(world.status_of(1, 2).code, Code::kPeerLost);
  EXPECT_EQ(world.losses(1).size(), 1u);
  world.end(0, 1).recv(5, received);
  ASSERT_TRUE(world.pump_until([&] { return world.is_done(0, 5); }));
  EXPECT_EQ(world.status_of(0, 5).code, Code::kShutDown);
}

TEST_P(Conformance, an_impossible_peer_or_channel_is_refused_at_once) {
  World world(GetParam(), 2);
  EXPECT_EQ(world.at(0).connect(0, world.at(0).address(), 0).code, Code::kInvalidArgument);
  EXPECT_EQ(world.at(0).connect(2, world.at(1).address(), 0).code, Code::kInvalidArgument);
  EXPECT_EQ(world.at(0).connect(-1, world.at(1).address(), 0).code, Code::kInvalidArgument);
  EXPECT_EQ(world.at(0).connect(1, world.at(1).address(), 60'000).code, Code::kInvalidArgument);
  EXPECT_EQ(world.at(0).connect(1, "no such place", 0).code, Code::kInvalidArgument);
  EXPECT_FALSE(world.at(0).reaches("no such place"));
  EXPECT_TRUE(world.at(0).reaches(world.at(1).address()));
  EXPECT_EQ(world.at(0).address().find(' '), std::string::npos);
  EXPECT_LE(world.at(0).address().size(), 1024u);
  EXPECT_EQ(world.at(0).endpoint(1, 0), nullptr);
}

INSTANTIATE_TEST_SUITE_P(Transports, Conformance,
                         ::testing::Values("tcp", "shm", "ucx_tcp", "ucx_sm", "sim_buffered",
                                           "sim_rendezvous"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace rueda::transport::testing::conformance_test
