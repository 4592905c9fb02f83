#include "rueda/transport/sim/sim.h"

#include <gtest/gtest.h>

#include <string>

namespace rueda::transport::sim_test {
namespace {

struct Trio {
  explicit Trio(SimOptions options) : network(options) {
    for (Rank rank = 0; rank < 3; ++rank) ranks.push_back(network.make(rank));
    for (Rank a = 0; a < 3; ++a) {
      for (const Rank b : {(a + 1) % 3, (a + 2) % 3})
        EXPECT_TRUE(ranks[static_cast<size_t>(a)]->connect(b, "sim:" + std::to_string(b), 0).is_ok());
    }
  }
  Endpoint& end(size_t rank, Rank peer) { return *ranks[rank]->endpoint(peer, 0); }
  SimNetwork network;
  std::vector<std::unique_ptr<Transport>> ranks;
};

// The order in which 0 hears from 1 and 2, as text.
std::string arrivals(uint64_t seed) {
  Trio trio({.size = 3, .seed = seed, .max_delay_ticks = 20});
  const Bytes sent(100);
  Bytes received(100);
  for (Ticket i = 0; i < 30; ++i) {
    trio.end(1, 0).send(i, sent);
    trio.end(2, 0).send(i, sent);
    trio.end(0, 1).recv(100 + i, received);
    trio.end(0, 2).recv(200 + i, received);
  }
  std::string order;
  std::vector<Completion> done;
  for (int tick = 0; tick < 20'000 && order.size() < 60; ++tick) {
    for (size_t rank = 0; rank < 3; ++rank) {
      done.clear();
      trio.ranks[rank]->progress(done);
      for (const Completion& c : done) {
        if (rank == 0) order += c.ticket < 200 ? '1' : '2';
      }
    }
  }
  return order;
}

TEST(Sim, a_seed_gives_the_same_run_again_and_another_seed_another) {
  EXPECT_EQ(arrivals(7).size(), 60u);
  EXPECT_EQ(arrivals(7), arrivals(7));
  EXPECT_NE(arrivals(7), arrivals(8));
}

TEST(Sim, a_buffered_send_completes_alone_and_a_rendezvous_waits_for_the_receive) {
  for (const bool is_rendezvous : {false, true}) {
    Trio trio({.size = 3, .is_rendezvous = is_rendezvous});
    const Bytes sent(10);
    Bytes received(10);
    std::vector<Completion> done, other;
    trio.end(0, 1).send(1, sent);
    for (int i = 0; i < 100; ++i) {
      trio.ranks[0]->progress(done);
      trio.ranks[1]->progress(other);
    }
    EXPECT_EQ(done.size(), is_rendezvous ? 0u : 1u);
    trio.end(1, 0).recv(2, received);
    for (int i = 0; i < 100; ++i) {
      trio.ranks[1]->progress(other);
      trio.ranks[0]->progress(done);
    }
    EXPECT_EQ(done.size(), 1u);
    EXPECT_EQ(other.size(), 1u);
  }
}

TEST(Sim, a_dropped_rank_is_a_loss_to_all_others_with_the_given_reason) {
  Trio trio({.size = 3});
  Bytes received(10);
  trio.end(0, 2).recv(1, received);
  trio.end(0, 1).recv(2, received);
  trio.network.drop(2, {Code::kPeerLost, "rank 2 was unplugged."});
  std::vector<Completion> done;
  trio.ranks[0]->progress(done);
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].ticket, 1u);
  EXPECT_EQ(done[0].status.why, "rank 2 was unplugged.");
  for (size_t rank : {0, 1}) {
    const std::vector<Loss> losses = trio.ranks[rank]->take_losses();
    ASSERT_EQ(losses.size(), 1u);
    EXPECT_EQ(losses[0].peer, 2);
  }
}

}  // namespace
}  // namespace rueda::transport::sim_test
