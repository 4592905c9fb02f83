// Sleeping ranks: no wake-up is ever lost, and the death of a real process is noticed. For the
// transports with descriptors.
#include <signal.h>
#include <sys/wait.h>

#include <atomic>
#include <random>
#include <thread>

#include "transport_world.h"

namespace rueda::transport::testing::wake_test {
namespace {

class Wake : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (const std::string why = why_skipped(GetParam()); !why.empty()) GTEST_SKIP() << why;
  }
};

// Sleeps as an engine does, long enough that a lost wake-up is a failure and not a delay.
bool sleep_until_work(Transport& transport) {
  if (!transport.prepare_sleep()) return true;
  std::vector<int> fds;
  transport.wake_fds(fds);
  std::vector<pollfd> polled;
  for (const int fd : fds) polled.push_back({fd, POLLIN, 0});
  return ::poll(polled.data(), polled.size(), 20'000) > 0;
}

// Runs until the ticket is done, and sleeps whenever nothing moves. False: it slept through its wake-up.
bool await(Transport& transport, Ticket ticket) {
  std::vector<Completion> done;
  while (true) {
    const bool is_moved = transport.progress(done);
    for (const Completion& completion : done) {
      if (completion.ticket == ticket) return completion.status.is_ok();
    }
    done.clear();
    if (!is_moved && !sleep_until_work(transport)) return false;
  }
}

TEST_P(Wake, two_threads_that_sleep_at_every_turn_never_miss_a_wake_up) {
  World world(GetParam(), 2);
  world.connect_all();
  constexpr int kTurns = 3000;
  std::atomic<bool> is_peer_well{true};
  std::thread peer([&] {
    std::mt19937 random(1);
    for (int i = 0; i < kTurns && is_peer_well; ++i) {
      Bytes ball(1 + random() % 200'000 / (i % 16 == 0 ? 1 : 1000));
      world.end(1, 0).recv(1, ball);
      if (!await(world.at(1), 1)) is_peer_well = false;
      world.end(1, 0).send(2, ball);
      if (!await(world.at(1), 2)) is_peer_well = false;
    }
  });
  std::mt19937 random(1);
  bool is_well = true;
  for (int i = 0; i < kTurns && is_well; ++i) {
    const Bytes ball = pattern(1 + random() % 200'000 / (i % 16 == 0 ? 1 : 1000), static_cast<uint64_t>(i));
    Bytes back(ball.size());
    world.end(0, 1).recv(2, back);
    world.end(0, 1).send(1, ball);
    is_well = await(world.at(0), 2) && back == ball;
  }
  if (!is_well) world.at(0).abort({Code::kInternal, "the test failed."});
  peer.join();
  EXPECT_TRUE(is_well);
  EXPECT_TRUE(is_peer_well);
}

TEST_P(Wake, a_stream_in_both_directions_between_sleeping_threads_arrives_whole) {
  World world(GetParam(), 2);
  world.connect_all();
  constexpr size_t kBytes = 16 << 20;
  std::array<Bytes, 2> sent{pattern(kBytes, 1), pattern(kBytes, 2)}, received{Bytes(kBytes), Bytes(kBytes)};
  std::array<bool, 2> is_well{};
  const auto run = [&](Rank me) {
    world.end(me, 1 - me).recv(1, received[static_cast<size_t>(me)]);
    world.end(me, 1 - me).send(2, sent[static_cast<size_t>(me)]);
    std::vector<Completion> done;
    bool is_awake = true;
    while (done.size() < 2 && is_awake) {
      if (!world.at(me).progress(done)) is_awake = sleep_until_work(world.at(me));
    }
    is_well[static_cast<size_t>(me)] = done.size() == 2 && done[0].status.is_ok() && done[1].status.is_ok();
  };
  std::thread peer([&] { run(1); });
  run(0);
  peer.join();
  EXPECT_TRUE(is_well[0] && is_well[1]);
  EXPECT_TRUE(received[0] == sent[1] && received[1] == sent[0]);
}

std::string read_text(int pipe) {
  std::array<char, 1024> text{};
  const ssize_t length = read(pipe, text.data(), text.size());
  return {text.data(), static_cast<size_t>(std::max<ssize_t>(length, 0))};
}

// The child is rank 1 in a process of its own. Beside it lives an orphan that holds its sockets open, as data
// loader workers do. Only shared memory can tell the two apart; over tcp, heartbeats must.
TEST_P(Wake, a_killed_process_is_a_loss_at_once) {
  Identity low = identity_of(0, 2), high = identity_of(1, 2);
  const bool has_orphan = GetParam() == "shm";
  int orphan_pipe[2], address_pipe[2];
  ASSERT_EQ(pipe(orphan_pipe), 0);
  ASSERT_EQ(pipe(address_pipe), 0);
  const pid_t child = fork();  // before any transport: a child of fork() has no threads of UCX
  if (child == 0) {
    auto theirs = make_transport(GetParam(), high, nullptr);
    if (!theirs->connect(0, read_text(address_pipe[0]), 0).is_ok()) _exit(1);
    std::vector<Completion> done;
    while (theirs->endpoint(0, 0) == nullptr) theirs->progress(done);
    const pid_t orphan = has_orphan ? fork() : 0;
    if (has_orphan && orphan == 0) {
      alarm(20);
      while (true) pause();
    }
    (void)!write(orphan_pipe[1], &orphan, sizeof(orphan));
    alarm(20);
    while (true) theirs->progress(done);
  }
  auto mine = make_transport(GetParam(), low, nullptr);
  const std::string my_address = mine->address();
  ASSERT_EQ(write(address_pipe[1], my_address.data(), my_address.size()),
            static_cast<ssize_t>(my_address.size()));
  close(address_pipe[0]);
  close(address_pipe[1]);
  ASSERT_TRUE(mine->connect(1, my_address, 0).is_ok());
  std::vector<Completion> done;
  const Deadline deadline = Deadline::after(30 * kSecond);
  while (mine->endpoint(1, 0) == nullptr && !deadline.is_past()) mine->progress(done);
  ASSERT_NE(mine->endpoint(1, 0), nullptr);
  pid_t orphan = 0;
  ASSERT_EQ(read(orphan_pipe[0], &orphan, sizeof(orphan)), static_cast<ssize_t>(sizeof(orphan)));
  close(orphan_pipe[0]);
  close(orphan_pipe[1]);
  Bytes received(10);
  mine->endpoint(1, 0)->recv(1, received);
  mine->progress(done);
  kill(child, SIGKILL);
  std::vector<Loss> losses;
  // Soon: without the news of the end, the silence of a rank would be noticed after 30 s.
  for (const Deadline soon = Deadline::after(20 * kSecond); losses.empty() && !soon.is_past();) {
    const bool is_moved = mine->progress(done);
    ASSERT_TRUE(is_moved || sleep_until_work(*mine));
    losses = mine->take_losses();
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (orphan > 0) kill(orphan, SIGKILL);
  ASSERT_EQ(losses.size(), 1u);
  EXPECT_EQ(losses[0].status.code, Code::kPeerLost);
  EXPECT_NE(losses[0].status.why.find("rank 1"), std::string::npos);
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].status.code, Code::kPeerLost);
}

INSTANTIATE_TEST_SUITE_P(Transports, Wake, ::testing::Values("tcp", "shm", "ucx_tcp", "ucx_sm"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace rueda::transport::testing::wake_test
