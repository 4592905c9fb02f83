#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <functional>

#include "rueda/base/unique_fd.h"

namespace rueda::base_fork_guard_test {
namespace {

struct Pair {
  UniqueFd mine, theirs;
};

Pair make_pair() {
  std::array<int, 2> fds{};
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds.data()), 0);
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

bool is_open(int fd) { return fcntl(fd, F_GETFD) >= 0; }

// The exit status of a child that runs body.
int in_child(const std::function<bool()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body() ? 0 : 1);
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

TEST(ForkGuard, AChildClosesWhatIsGuardedAndTheParentKeepsIt) {
  Pair pair = make_pair();
  pair.mine.close_on_fork();
  EXPECT_EQ(in_child([&] { return !is_open(pair.mine.get()) && is_open(pair.theirs.get()); }), 0);
  EXPECT_EQ(write(pair.mine.get(), "x", 1), 1);
  char got = 0;
  EXPECT_EQ(read(pair.theirs.get(), &got, 1), 1);
}

TEST(ForkGuard, ThePeerSeesTheParentsEndWhileAChildLivesOn) {
  Pair pair = make_pair();
  pair.mine.close_on_fork();
  std::array<int, 2> pipe_fds{};
  ASSERT_EQ(pipe(pipe_fds.data()), 0);
  UniqueFd reading(pipe_fds[0]), writing(pipe_fds[1]);
  const pid_t child = fork();
  if (child == 0) {
    writing.reset();
    char unused = 0;
    const ssize_t got = read(reading.get(), &unused, 1);  // until the parent lets go
    _exit(got == 0 ? 0 : 1);
  }
  pair.mine.reset();
  timeval limit{.tv_sec = 10, .tv_usec = 0};
  setsockopt(pair.theirs.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  char got = 0;
  EXPECT_EQ(recv(pair.theirs.get(), &got, 1, 0), 0);
  writing.reset();
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(ForkGuard, AClosedNumberThatIsReusedIsLeftAlone) {
  Pair pair = make_pair();
  pair.mine.close_on_fork();
  const int number = pair.mine.get();
  pair.mine.reset();
  Pair other = make_pair();
  ASSERT_TRUE(other.mine.get() == number || other.theirs.get() == number);
  EXPECT_EQ(in_child([&] { return is_open(number); }), 0);
}

TEST(ForkGuard, ANumberThatStandsForAnotherSocketIsLeftAlone) {
  Pair pair = make_pair();
  Pair other = make_pair();
  pair.mine.close_on_fork();
  ASSERT_GE(dup2(other.mine.get(), pair.mine.get()), 0);
  EXPECT_EQ(in_child([&] { return is_open(pair.mine.get()); }), 0);
}

TEST(ForkGuard, AChildDoesNotCloseANumberTwice) {
  Pair pair = make_pair();
  pair.mine.close_on_fork();
  const int number = pair.mine.get();
  EXPECT_EQ(in_child([&] {
              const int reused = open("/dev/null", O_RDONLY);
              pair.mine.reset();
              return reused == number && is_open(number);
            }),
            0);
}

TEST(ForkGuard, TheGuardMovesWithTheDescriptorAndEndsWithRelease) {
  Pair pair = make_pair();
  pair.mine.close_on_fork();
  UniqueFd moved = std::move(pair.mine);
  EXPECT_EQ(in_child([&] { return !is_open(moved.get()); }), 0);
  const UniqueFd released(moved.release());
  EXPECT_EQ(in_child([&] { return is_open(released.get()); }), 0);
}

TEST(ForkGuard, OnlySocketsWithinTheTableAreGuarded) {
  const UniqueFd file(open("/dev/null", O_RDONLY));
  EXPECT_FALSE(fork_guard::add(file.get()));
  EXPECT_FALSE(fork_guard::add(-1));
  EXPECT_FALSE(fork_guard::add(1 << 30));
  EXPECT_FALSE(fork_guard::forget(file.get()));
}

}  // namespace
}  // namespace rueda::base_fork_guard_test
