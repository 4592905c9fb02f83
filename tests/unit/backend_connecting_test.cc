// Calls whose channels come up while they wait: what goes on meanwhile, results, a peer that never comes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "backend_fake_mesh.h"

namespace rueda::backend_test {
namespace {

using schedule::Topology;
using testing::ElementsAre;
using testing::SizeIs;

constexpr size_t kChannels = 2;

backend::NativeOptions two_channels() {
  backend::NativeOptions options;
  options.chunk_bytes = 256;
  options.channels = kChannels;
  return options;
}

// Allreduces in place over all ranks, each on the channel of its number.
struct World {
  FakeMesh mesh;
  std::vector<Group> groups;
  std::deque<std::vector<float>> data;  // [call * ranks + rank]
  backend::CallId calls = 0;

  World(const Topology& topology, WireKind kind, uint64_t seed) : mesh(topology, kind, seed, two_channels()) {
    for (Rank me = 0; me < mesh.size(); ++me) groups.push_back(mesh.world(me));
  }
  void start(int64_t count, bool may_be_cancelled = false) {
    for (Rank me = 0; me < mesh.size(); ++me) {
      std::vector<float>& mine = data.emplace_back(static_cast<size_t>(count));
      std::iota(mine.begin(), mine.end(), static_cast<float>(1000 * me));
      mesh.backend(me).start({.id = calls,
                              .group = &groups[static_cast<size_t>(me)],
                              .spec = schedule::Spec{.what = Collective::kAllreduce,
                                                     .count = count,
                                                     .counts = {},
                                                     .scale = {},
                                                     .segment_counts = {}},
                              .input = mine.data(),
                              .output = mine.data(),
                              .may_be_cancelled = may_be_cancelled});
    }
    ++calls;
  }
  void expect_sums() {
    const auto n = static_cast<float>(mesh.size());
    for (const std::vector<float>& sums : data)
      for (size_t i = 0; i < sums.size(); ++i)
        ASSERT_EQ(sums[i], n * static_cast<float>(i) + 1000 * n * (n - 1) / 2) << "element " << i;
    EXPECT_TRUE(mesh.are_wires_empty());
  }
  // The numbers of the calls that have ended on this rank.
  std::vector<backend::CallId> done(Rank rank) {
    std::vector<backend::CallId> ids;
    for (const backend::Done& each : mesh.done(rank)) {
      EXPECT_TRUE(each.status.is_ok()) << each.status.why;
      ids.push_back(each.id);
    }
    return ids;
  }
};

TEST(Connecting, a_call_waits_in_its_channel_and_those_of_the_other_channel_go_on) {
  World world(Topology::single_host(3), WireKind::kBuffered, 1);
  world.mesh.hold(0, 1, 0);
  for (int i = 0; i < 5; ++i) world.start(100);
  EXPECT_FALSE(world.mesh.run());
  for (Rank me = 0; me < 3; ++me)
    EXPECT_THAT(world.done(me), ElementsAre(1)) << "calls start in order, and the third waits";
  EXPECT_TRUE(world.mesh.backend(0).prepare_sleep()) << "there is nothing to do before the channel is up";
  world.mesh.let_come(0, 1, 0);
  ASSERT_TRUE(world.mesh.run());
  for (Rank me = 0; me < 3; ++me) EXPECT_THAT(world.done(me), SizeIs(5));
  world.expect_sums();
}

TEST(Connecting, results_are_right_whichever_end_of_a_channel_comes_up_first) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Topology topology = seed % 3 == 0 ? Topology::single_host(4) : Topology::regular(2, 2);
    World world(topology, seed % 2 ? WireKind::kBuffered : WireKind::kRendezvous, seed);
    world.mesh.connect_late();
    for (const int64_t count : {1, 700, 64, 3000, 10}) world.start(count);
    ASSERT_TRUE(world.mesh.run());
    world.expect_sums();
    if (testing::Test::HasFailure()) return;
  }
}

TEST(Connecting, a_call_that_is_cancelled_waits_only_for_channels_on_which_messages_arrive) {
  World world(Topology::single_host(3), WireKind::kBuffered, 1);
  for (const Rank peer : {1, 2}) world.mesh.hold(0, peer, 0);
  for (const auto& [from, to] : {std::pair{1, 2}, {2, 1}, {1, 0}, {2, 0}}) world.mesh.hold(from, to, 0);
  world.start(100, true);
  EXPECT_FALSE(world.mesh.run());
  const std::vector<int32_t> nothing(3, 0);
  for (Rank me = 0; me < 3; ++me) EXPECT_EQ(world.mesh.backend(me).pause(0), nothing);
  for (Rank me = 0; me < 3; ++me) world.mesh.backend(me).cancel(0, nothing);
  ASSERT_TRUE(world.mesh.run()) << "though no channel has come up";
  for (Rank me = 0; me < 3; ++me) EXPECT_THAT(world.done(me), ElementsAre(0));
}

TEST(Connecting, is_never_asked_for_where_all_channels_are_up) {
  World world(Topology::regular(2, 2), WireKind::kBuffered, 1);
  world.start(1000);
  ASSERT_TRUE(world.mesh.run());
  EXPECT_EQ(world.mesh.connects, 0);
}

TEST(Connecting, to_a_peer_that_never_comes_ends_at_its_deadline_and_names_the_peer) {
  World world(Topology::single_host(3), WireKind::kBuffered, 1);
  world.mesh.hold(0, 2, 0);
  world.start(100);
  world.start(200);
  EXPECT_FALSE(world.mesh.run());
  world.mesh.now += FakeMesh::kPatience - 1;
  EXPECT_FALSE(world.mesh.run());
  std::vector<backend::Done>& done = world.mesh.done(0);
  ASSERT_THAT(done, SizeIs(1)) << "the second call, on the other channel";
  done.clear();
  world.mesh.now += 1;
  EXPECT_FALSE(world.mesh.run()) << "the others wait for what rank 0 sends";
  ASSERT_THAT(done, SizeIs(1));
  EXPECT_EQ(done[0].id, 0U);
  EXPECT_EQ(done[0].status.code, Code::kPeerLost);
  EXPECT_EQ(done[0].status.why,
            "no connection to rank 2 over wires came up within 5 s; check firewalls and interfaces, or raise "
            "RUEDA_PEER_TIMEOUT_SECONDS.");
  world.start(300);
  world.mesh.sweep_all();
  ASSERT_THAT(done, SizeIs(2));
  EXPECT_EQ(done[1].status.why, done[0].status.why) << "the channels are out of step";
}

TEST(Connecting, that_cannot_succeed_ends_at_once_and_names_the_peer) {
  World world(Topology::single_host(2), WireKind::kBuffered, 1);
  world.mesh.hold(0, 1, 0);
  world.mesh.refusal = {Code::kUnavailable, "no transport reaches it."};
  world.start(100);
  world.mesh.sweep_all();
  const std::vector<backend::Done>& done = world.mesh.done(0);
  ASSERT_THAT(done, SizeIs(1));
  EXPECT_EQ(done[0].status.code, Code::kPeerLost);
  EXPECT_EQ(done[0].status.why, "cannot connect to rank 1 over wires: no transport reaches it.");
}

TEST(Connecting, ends_with_an_abort) {
  World world(Topology::single_host(2), WireKind::kBuffered, 1);
  world.mesh.hold(0, 1, 0);
  world.start(100);
  EXPECT_FALSE(world.mesh.run());
  world.mesh.backend(0).abort({Code::kPeerLost, "rank 1 was lost."});
  world.mesh.sweep_all();
  ASSERT_THAT(world.mesh.done(0), SizeIs(1));
  EXPECT_EQ(world.mesh.done(0)[0].status.why, "rank 1 was lost.");
  EXPECT_TRUE(world.mesh.backend(0).is_idle());
}

}  // namespace
}  // namespace rueda::backend_test
