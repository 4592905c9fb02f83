// Ranks of one host that watch over one another: channels in shared memory hold no descriptor, carry data,
// wake sleepers, and still tell who has gone.
#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "rueda/transport/shm/process_watch.h"
#include "transport_world.h"

namespace rueda::transport::testing::host_test {
namespace {

using ::testing::HasSubstr;

size_t open_descriptors() {
  const std::filesystem::directory_iterator open_ones("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(open_ones), end(open_ones)));
}

// Of all ranks of a world.
class Host {
 public:
  explicit Host(Rank size, bool see_one_another = true)
      : world_("shm", size), words_(static_cast<size_t>(size) + 1, 0) {
    for (Rank rank = 0; rank < size; ++rank) {
      host_.ranks.push_back(rank);
      host_.addresses.push_back(world_.at(rank).address());
      if (see_one_another) host_.pids.push_back(getpid());
    }
    host_.ended = words_;
  }
  World& world() { return world_; }
  void watch_over() {
    for (const Rank rank : host_.ranks) world_.at(rank).watch_over(host_);
  }
  // Every rank sends every other one a message on each channel.
  void exchange(uint16_t channels, size_t bytes) {
    Ticket ticket = next_;
    std::vector<Bytes> received;
    const auto ranks = static_cast<size_t>(world_.size());
    received.reserve(ranks * ranks * channels);
    const Bytes sent = pattern(bytes, ticket);
    for (Rank a = 0; a < world_.size(); ++a) {
      for (Rank b = 0; b < world_.size(); ++b) {
        for (uint16_t channel = 0; a != b && channel < channels; ++channel) {
          world_.end(a, b, channel).recv(ticket++, received.emplace_back(bytes));
          world_.end(b, a, channel).send(ticket++, sent);
        }
      }
    }
    const auto is_over = [&] {
      return std::ranges::all_of(received, [&](const Bytes& one) { return one == sent; });
    };
    EXPECT_TRUE(world_.pump_until(is_over));
    next_ = ticket;
  }

 private:
  World world_;
  std::vector<uint32_t> words_;
  HostWatch host_;
  Ticket next_ = 1;
};

TEST(TransportHost, channels_hold_no_descriptor_and_carry_data_as_before) {
  constexpr Rank kRanks = 8;
  Host host(kRanks);
  const size_t before = open_descriptors();
  host.world().connect_all(2);
  host.watch_over();
  host.exchange(2, 100);
  host.exchange(2, 300'000);  // more than a ring takes: its reader must wake its writer
  const size_t of_each = ProcessWatch::kOwn + ProcessWatch::kGuarded;
  const auto are_few = [&] { return open_descriptors() <= before + kRanks * of_each; };
  EXPECT_TRUE(host.world().pump_until(are_few, 10 * kSecond)) << open_descriptors() << " and " << before;
}

TEST(TransportHost, channels_that_come_up_later_hold_none_either) {
  constexpr Rank kRanks = 6;
  Host host(kRanks);
  host.world().connect_all(1);
  host.watch_over();
  host.exchange(1, 100);
  const size_t sockets = open_descriptors();
  host.world().connect_all(3);
  host.exchange(3, 100);
  EXPECT_TRUE(host.world().pump_until([&] { return open_descriptors() <= sockets; }, 10 * kSecond));
}

TEST(TransportHost, a_rank_that_leaves_is_lost_by_all_others_at_once) {
  Host host(8);
  host.world().connect_all(1);
  host.watch_over();
  host.exchange(1, 100);
  host.world().kill(5);  // it is destroyed, and its process lives on
  const auto all_know = [&] {
    for (Rank rank = 0; rank < 8; ++rank)
      if (rank != 5 && host.world().losses(rank).empty()) return false;
    return true;
  };
  EXPECT_TRUE(host.world().pump_until(all_know, 10 * kSecond));
  for (Rank rank = 0; rank < 8; ++rank) {
    if (rank == 5) continue;
    ASSERT_EQ(host.world().losses(rank).size(), 1u);
    EXPECT_THAT(host.world().losses(rank)[0].status.why, HasSubstr("rank 5 closed its connection"));
  }
}

TEST(TransportHost, ranks_that_do_not_see_one_anothers_processes_keep_their_sockets) {
  constexpr Rank kRanks = 8;
  Host host(kRanks, false);
  host.world().connect_all(1);
  const size_t before = open_descriptors();
  host.watch_over();
  host.exchange(1, 100);
  host.exchange(1, 100);
  EXPECT_GT(open_descriptors() + 8, before) << "only those that it watches itself are gone";
  host.world().kill(0);
  EXPECT_TRUE(host.world().pump_until([&] { return !host.world().losses(7).empty(); }, 10 * kSecond));
}

TEST(TransportHost, a_rank_is_woken_by_any_other_of_its_host) {
  Host host(9);
  host.world().connect_all(1);
  host.watch_over();
  host.exchange(1, 1);
  Transport& sleeper = host.world().at(8);
  std::vector<Completion> done;
  while (!sleeper.prepare_sleep()) sleeper.progress(done);
  std::vector<int> fds;
  sleeper.wake_fds(fds);
  pollfd polled{.fd = fds.front(), .events = POLLIN, .revents = 0};
  while (poll(&polled, 1, 0) == 1) {  // what earlier rings have left
    sleeper.progress(done);
    while (!sleeper.prepare_sleep()) sleeper.progress(done);
  }
  host.world().at(3).ring(8);
  EXPECT_EQ(poll(&polled, 1, 10'000), 1);
}

}  // namespace
}  // namespace rueda::transport::testing::host_test
