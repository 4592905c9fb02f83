#include "rueda/memory/arena.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <random>
#include <vector>

namespace rueda::memory::arena_test {
namespace {

TEST(SharedMemory, shows_the_same_bytes_at_both_ends) {
  SharedMemory mine = SharedMemory::create(8192).value();
  SharedMemory other = SharedMemory::adopt(UniqueFd(dup(mine.fd())), 8192, 8192).value();
  mine.base()[5000] = std::byte{7};
  EXPECT_EQ(other.base()[5000], std::byte{7});
  EXPECT_TRUE(mine.holds(mine.base() + 8191, 1));
  EXPECT_FALSE(mine.holds(mine.base() + 8191, 2));
  EXPECT_FALSE(mine.holds(&mine, 1));
}

TEST(SharedMemory, refuses_what_could_be_pulled_away_or_has_another_size) {
  const UniqueFd unsealed(memfd_create("test", 0));
  ASSERT_EQ(ftruncate(unsealed.get(), 4096), 0);
  EXPECT_EQ(SharedMemory::adopt(UniqueFd(dup(unsealed.get())), 1, 8192).status().code,
            Code::kPermissionDenied);
  const SharedMemory sealed = SharedMemory::create(4096).value();
  EXPECT_EQ(SharedMemory::adopt(UniqueFd(dup(sealed.fd())), 8192, 8192).status().code,
            Code::kPermissionDenied);
  EXPECT_FALSE(SharedMemory::adopt(UniqueFd(), 1, 8192).is_ok());
}

// The kernel's own answer would be SIGXFSZ.
TEST(SharedMemory, larger_than_files_of_this_process_may_be_is_refused) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{.rlim_cur = 1 << 20, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Result<SharedMemory> larger = SharedMemory::create((1 << 20) + 4096);
  const Result<SharedMemory> fitting = SharedMemory::create(1 << 20);
  const size_t arena_bytes = default_arena_bytes();
  setrlimit(RLIMIT_FSIZE, &before);
  ASSERT_FALSE(larger.is_ok());
  EXPECT_NE(larger.status().why.find("ulimit -f"), std::string::npos) << larger.status().why;
  EXPECT_TRUE(fitting.is_ok());
  EXPECT_EQ(arena_bytes, 1U << 20);
}

TEST(Arena, takes_a_small_part_of_the_addresses_where_these_are_limited) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  const rlimit less{.rlim_cur = rlim_t{16} << 30, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_AS, &less), 0);
  const size_t bytes = default_arena_bytes();
  setrlimit(RLIMIT_AS, &before);
  EXPECT_EQ(bytes, size_t{1} << 30);
}

TEST(Arena, gives_disjoint_aligned_blocks_and_takes_them_back) {
  const std::unique_ptr<Arena> arena = Arena::create(1 << 20).value();
  std::mt19937_64 random(3);
  struct Block {
    std::byte* at;
    size_t bytes;
  };
  std::vector<Block> blocks;
  for (int round = 0; round < 2000; ++round) {
    if (random() % 2 == 0) {
      const size_t bytes = 1 + random() % (random() % 8 == 0 ? 200000 : 5000);
      auto* at = static_cast<std::byte*>(arena->allocate(bytes));
      if (at == nullptr) continue;
      EXPECT_EQ(reinterpret_cast<uintptr_t>(at) % (bytes >= Arena::kPageFrom ? Arena::kPage : Arena::kLine),
                0u);
      EXPECT_TRUE(arena->memory().holds(at, bytes));
      for (const Block& other : blocks)
        ASSERT_TRUE(at + bytes <= other.at || other.at + other.bytes <= at) << "two blocks share memory";
      blocks.push_back({at, bytes});
    } else if (!blocks.empty()) {
      const size_t victim = random() % blocks.size();
      ASSERT_TRUE(arena->release(blocks[victim].at));
      blocks.erase(blocks.begin() + static_cast<ptrdiff_t>(victim));
    }
  }
  for (const Block& block : blocks) ASSERT_TRUE(arena->release(block.at));
  EXPECT_EQ(arena->used_bytes(), 0u);
  EXPECT_NE(arena->allocate(1 << 20), nullptr) << "free neighbours must merge";
}

TEST(Arena, answers_null_when_full_and_false_for_what_is_no_block) {
  const std::unique_ptr<Arena> arena = Arena::create(4096).value();
  EXPECT_EQ(arena->allocate(4097), nullptr);
  auto* block = static_cast<std::byte*>(arena->allocate(0));
  ASSERT_NE(block, nullptr);
  EXPECT_FALSE(arena->release(block + 64));
  EXPECT_FALSE(arena->release(&block));
  EXPECT_TRUE(arena->release(block));
  EXPECT_FALSE(arena->release(block)) << "twice";
}

TEST(Arena, trimming_gives_pages_of_free_ranges_back_and_keeps_what_is_used) {
  const std::unique_ptr<Arena> arena = Arena::create(1 << 20).value();
  auto* first = static_cast<std::byte*>(arena->allocate(256 << 10));
  auto* second = static_cast<std::byte*>(arena->allocate(256 << 10));
  std::memset(first, 1, 256 << 10);
  std::memset(second, 2, 256 << 10);
  const auto resident = [&] {
    struct stat info {};
    fstat(arena->memory().fd(), &info);
    return info.st_blocks * 512;
  };
  EXPECT_EQ(resident(), 512 << 10);
  ASSERT_TRUE(arena->release(first));
  arena->trim();
  EXPECT_EQ(resident(), 256 << 10);
  EXPECT_EQ(second[0], std::byte{2});
  EXPECT_EQ(second[(256 << 10) - 1], std::byte{2});
}

// What a child sees and does, with the handlers called as pthread_atfork would. body may use `to_parent` and
// `from_parent` to take turns.
struct Fork {
  Arena* arena;
  int to_child[2], to_parent[2];

  explicit Fork(Arena* forked) : arena(forked) {
    EXPECT_EQ(pipe(to_child), 0);
    EXPECT_EQ(pipe(to_parent), 0);
  }
  pid_t start(const std::function<bool()>& body) {
    arena->before_fork();
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);
      arena->after_fork_in_child();
      _exit(body() ? 0 : 1);
    }
    arena->after_fork_in_parent();
    return child;
  }
  static void tell(const int* fds) { EXPECT_EQ(write(fds[1], "x", 1), 1); }
  static void await(const int* fds) {
    char unused = 0;
    EXPECT_EQ(read(fds[0], &unused, 1), 1);
  }
  static int status_of(pid_t child) {
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return status;
  }
};

TEST(Arena, a_child_sees_its_parents_blocks_as_they_were_at_the_fork) {
  const std::unique_ptr<Arena> arena = Arena::create(8 << 20).value();
  auto* low = static_cast<std::byte*>(arena->allocate(100 << 10));
  auto* high = static_cast<std::byte*>(arena->allocate(3 << 20));
  std::memset(low, 1, 100 << 10);
  std::memset(high, 2, 3 << 20);
  Fork fork(arena.get());
  const pid_t child = fork.start([&] {
    Fork::await(fork.to_child);  // the parent has written meanwhile
    return low[50] == std::byte{1} && high[(3 << 20) - 1] == std::byte{2};
  });
  std::memset(low, 7, 100 << 10);
  std::memset(high, 8, 3 << 20);
  Fork::tell(fork.to_child);
  EXPECT_EQ(Fork::status_of(child), 0);
}

TEST(Arena, what_a_child_does_is_not_seen_by_its_parent) {
  const std::unique_ptr<Arena> arena = Arena::create(8 << 20).value();
  auto* block = static_cast<std::byte*>(arena->allocate(1 << 20));
  std::memset(block, 1, 1 << 20);
  Fork fork(arena.get());
  const pid_t child = fork.start([&] {
    std::memset(block, 9, 1 << 20);
    const bool gives_none = arena->allocate(64) == nullptr;
    const bool is_released = arena->release(block);
    arena->trim();
    Fork grandchild(arena.get());
    const pid_t its_child = grandchild.start([&] { return arena->allocate(1) == nullptr; });
    return gives_none && is_released && Fork::status_of(its_child) == 0;
  });
  EXPECT_EQ(Fork::status_of(child), 0);
  EXPECT_EQ(block[0], std::byte{1});
  EXPECT_EQ(block[(1 << 20) - 1], std::byte{1});
  EXPECT_NE(arena->allocate(1 << 20), nullptr);
  EXPECT_TRUE(arena->release(block));
}

TEST(Arena, a_child_of_an_arena_without_blocks_can_touch_nothing_of_it) {
  const std::unique_ptr<Arena> arena = Arena::create(1 << 20).value();
  auto* block = static_cast<std::byte*>(arena->allocate(4096));
  block[0] = std::byte{5};
  ASSERT_TRUE(arena->release(block));
  Fork fork(arena.get());
  const pid_t child = fork.start([&] {
    return msync(block, 4096, MS_ASYNC) == 0 && arena->allocate(1) == nullptr;  // mapped, to nothing
  });
  EXPECT_EQ(Fork::status_of(child), 0);
  EXPECT_EQ(block[0], std::byte{5});
}

}  // namespace
}  // namespace rueda::memory::arena_test
