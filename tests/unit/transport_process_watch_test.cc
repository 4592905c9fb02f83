// Ranks of a host notice that others have ended: with children of this process, and with hosts in one thread.
#include "rueda/transport/shm/process_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <memory>
#include <utility>
#include <vector>

namespace rueda::transport::process_watch_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(GuardedBy, are_the_next_ranks_that_have_not_ended) {
  const std::vector<bool> nobody(5, false);
  EXPECT_THAT(guarded_by(0, nobody, 2), ElementsAre(1, 2));
  EXPECT_THAT(guarded_by(4, nobody, 2), ElementsAre(0, 1));
  EXPECT_THAT(guarded_by(1, {false, false, true, true, false}, 2), ElementsAre(4, 0));
  EXPECT_THAT(guarded_by(0, {false, false}, 2), ElementsAre(1));
  EXPECT_THAT(guarded_by(0, {false}, 2), IsEmpty());
}

// However many ranks end, each living one but the watcher itself is watched by a living one.
TEST(GuardedBy, leaves_no_living_rank_without_a_living_watcher) {
  for (size_t size = 2; size <= 6; ++size) {
    for (size_t dead = 0; dead < (size_t{1} << size); ++dead) {
      std::vector<bool> has_ended(size);
      size_t living = 0;
      for (size_t i = 0; i < size; ++i) {
        has_ended[i] = (dead >> i & 1) != 0;
        living += has_ended[i] ? 0 : 1;
      }
      std::vector<int> watchers(size, 0);
      for (size_t me = 0; me < size; ++me)
        if (!has_ended[me])
          for (const size_t place : guarded_by(me, has_ended, 2)) ++watchers[place];
      for (size_t i = 0; i < size && living > 1; ++i)
        EXPECT_EQ(watchers[i], has_ended[i] ? 0 : std::min<int>(2, static_cast<int>(living) - 1)) << dead;
    }
  }
}

// A process that waits for its end.
class Child {
 public:
  Child() : pid_(fork()) {
    while (pid_ == 0) pause();
  }
  ~Child() {
    kill();
    reap();
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  [[nodiscard]] pid_t pid() const { return pid_; }
  void kill() const {
    if (is_reaped_) return;
    ::kill(pid_, SIGKILL);
    siginfo_t about{};
    EXPECT_EQ(waitid(P_PID, static_cast<id_t>(pid_), &about, WEXITED | WNOWAIT), 0);  // it has ended
  }
  void reap() {
    if (std::exchange(is_reaped_, true)) return;
    EXPECT_EQ(waitpid(pid_, nullptr, 0), pid_);
  }

 private:
  pid_t pid_;
  bool is_reaped_ = false;
};

// Ranks 10, 11, … of one host: each has a child as its process, and watches from this one.
class Host {
 public:
  explicit Host(size_t size) : children_(size), words_(size + 1, 0), rung_(size, 0) {
    for (size_t i = 0; i < size; ++i) {
      pollers_.push_back(Poller::make().value());
      watches_.push_back(std::make_unique<ProcessWatch>(rank(i), *pollers_[i]));
    }
  }
  [[nodiscard]] static Rank rank(size_t place) { return static_cast<Rank>(10 + place); }
  ProcessWatch& at(size_t place) { return *watches_[place]; }
  Child& child(size_t place) { return children_[place]; }
  [[nodiscard]] int rung(size_t place) const { return rung_[place]; }

  void connect(size_t place, size_t to) { ASSERT_TRUE(at(place).see(rank(to), children_[to].pid()).is_ok()); }
  void begin_all() {
    HostWatch host{.ended = words_};
    for (size_t i = 0; i < children_.size(); ++i) {
      host.ranks.push_back(rank(i));
      host.pids.push_back(children_[i].pid());
    }
    for (auto& watch : watches_)
      watch->begin(host, [this](Rank to) { ++rung_[static_cast<size_t>(to - rank(0))]; });
  }
  // now: large enough to look at others as well, or 0.
  bool look(size_t place, Nanos now = 0) {
    pollfd polled{.fd = pollers_[place]->fd(), .events = POLLIN, .revents = 0};
    poll(&polled, 1, 0);
    pollers_[place]->poll();
    return at(place).progress(now);
  }

 private:
  std::vector<Child> children_;
  std::vector<uint32_t> words_;
  std::vector<int> rung_;
  std::vector<std::unique_ptr<Poller>> pollers_;
  std::vector<std::unique_ptr<ProcessWatch>> watches_;
};

constexpr Nanos kLater = 3600 * kSecond;  // every interval is over

TEST(ProcessWatch, notices_the_end_of_the_ranks_that_it_connects_to_first) {
  Host host(6);
  for (size_t peer = 1; peer < 6; ++peer) host.connect(0, peer);
  for (size_t peer = 1; peer <= ProcessWatch::kOwn; ++peer) EXPECT_TRUE(host.at(0).watches(Host::rank(peer)));
  EXPECT_FALSE(host.at(0).watches(Host::rank(5))) << "it has no descriptor for it, and no host to rely on";
  host.child(2).kill();
  EXPECT_TRUE(host.look(0));
  EXPECT_TRUE(host.at(0).has_ended(Host::rank(2)));
  EXPECT_FALSE(host.at(0).has_ended(Host::rank(1)));
  EXPECT_FALSE(host.look(0)) << "it is said once";
}

TEST(ProcessWatch, hears_of_other_ends_from_those_that_watch_them) {
  Host host(9);
  for (size_t peer = 1; peer < 9; ++peer) host.connect(0, peer);
  host.begin_all();
  host.look(0, kLater);
  EXPECT_TRUE(host.at(0).watches(Host::rank(7)));
  host.child(7).kill();
  EXPECT_FALSE(host.look(0, kLater)) << "it watches 1 to 4 itself";
  EXPECT_TRUE(host.look(5, kLater));
  EXPECT_GT(host.rung(0), 0);
  EXPECT_EQ(host.rung(7), 0) << "nobody is there";
  EXPECT_TRUE(host.look(0, kLater));
  EXPECT_TRUE(host.at(0).has_ended(Host::rank(7)));
}

TEST(ProcessWatch, of_ranks_that_end_together_with_their_watchers_is_taken_over) {
  Host host(9);
  for (size_t peer = 1; peer < 9; ++peer) host.connect(0, peer);
  host.begin_all();
  for (size_t place = 0; place < 9; ++place) host.look(place, kLater);
  for (const size_t place : {5u, 6u, 7u}) host.child(place).kill();
  EXPECT_TRUE(host.look(4, kLater));  // 5 and 6; then it watches 7 and 8
  EXPECT_TRUE(host.look(4, kLater) || host.at(4).has_ended(Host::rank(7)));
  EXPECT_TRUE(host.look(0, kLater));
  for (const size_t place : {5u, 6u, 7u}) EXPECT_TRUE(host.at(0).has_ended(Host::rank(place))) << place;
  EXPECT_FALSE(host.at(0).has_ended(Host::rank(8)));
}

TEST(ProcessWatch, looks_by_itself_where_the_watchers_are_stopped) {
  Host host(9);
  for (size_t peer = 1; peer < 9; ++peer) host.connect(0, peer);
  host.begin_all();
  host.look(0, kLater);
  host.child(7).kill();  // 5 and 6 look at nothing
  EXPECT_FALSE(host.look(0, kLater));
  EXPECT_TRUE(host.look(0, 2 * kLater));
  EXPECT_TRUE(host.at(0).has_ended(Host::rank(7)));
}

TEST(ProcessWatch, takes_a_process_that_ended_and_was_reaped_before_for_ended) {
  Host host(3);
  host.child(1).kill();
  host.child(1).reap();
  host.begin_all();
  EXPECT_TRUE(host.at(0).has_ended(Host::rank(1)));
  host.look(2);
  EXPECT_TRUE(host.at(2).has_ended(Host::rank(1)));
}

TEST(ProcessWatch, relies_on_no_host_whose_ranks_do_not_see_one_another) {
  const auto poller = Poller::make().value();
  ProcessWatch watch(0, *poller);
  std::vector<uint32_t> words(3, 0);
  watch.begin({.ranks = {0, 1}, .ended = words}, [](Rank) { ADD_FAILURE() << "nobody is rung"; });
  EXPECT_TRUE(watch.see(1, 0).is_ok());
  EXPECT_FALSE(watch.watches(1)) << "the socket to it tells";
}

}  // namespace
}  // namespace rueda::transport::process_watch_test
