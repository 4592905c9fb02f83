#include "rueda/memory/arena.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <random>
#include <vector>

namespace rueda::memory {
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

}  // namespace
}  // namespace rueda::memory
