// Several ranks of one host in one thread; a seeded generator chooses which one moves next.
#pragma once

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "backend_queue.h"
#include "rueda/backend/local/local.h"
#include "rueda/memory/arena.h"

namespace rueda::backend_test {

using backend::Done;
using backend::HostRank;
using backend::LocalBackend;

class Ranks {
 public:
  // nodes: the NUMA node of each rank; 0 if empty.
  explicit Ranks(size_t size, size_t arena_bytes = 64 << 20, const std::vector<int32_t>& nodes = {}) {
    const size_t bytes = backend::host_memory_bytes(size);
    const memory::SharedMemory memory = memory::SharedMemory::create(bytes).value();
    for (size_t i = 0; i < size; ++i) {
      arenas_.push_back(memory::Arena::create(arena_bytes).value());
      doorbells_.emplace_back(eventfd(0, EFD_NONBLOCK));
    }
    for (size_t me = 0; me < size; ++me) {
      std::vector<HostRank> seen;
      const auto mapped = std::make_shared<memory::SharedMemory>(
          memory::SharedMemory::adopt(UniqueFd(dup(memory.fd())), bytes, bytes).value());
      mapped->close_fd();
      for (size_t i = 0; i < size; ++i) {
        HostRank rank;
        rank.world_rank = static_cast<Rank>(i);
        rank.control_block = backend::control_block_at(mapped->base(), size, i);
        if (!nodes.empty()) rank.numa_node = nodes[i];
        if (size <= backend::kRungByDescriptor) rank.doorbell = UniqueFd(dup(doorbells_[i].get()));
        if (i == me)
          rank.arena = &arenas_[i]->memory();
        else
          rank.adopted_arena =
              memory::SharedMemory::adopt(UniqueFd(dup(arenas_[i]->memory().fd())), 1, size_t{1} << 40)
                  .value();
        rank.adopted_arena.close_fd();
        seen.push_back(std::move(rank));
      }
      backends_.emplace_back(std::make_unique<LocalBackend>(std::make_shared<backend::LocalHost>(
          std::move(seen), me, mapped, [this](Rank rank) { ring(static_cast<size_t>(rank)); })));
    }
  }

  Queue<LocalBackend>& at(size_t rank) { return backends_[rank]; }
  memory::Arena& arena(size_t rank) { return *arenas_[rank]; }
  [[nodiscard]] size_t size() const { return backends_.size(); }
  bool has_rung(size_t rank) {
    uint64_t rings = 0;
    return read(doorbells_[rank].get(), &rings, sizeof(rings)) == static_cast<ssize_t>(sizeof(rings));
  }

  // Until `expected` calls are done on each rank of `who`.
  void run(const std::vector<size_t>& who, size_t expected, std::mt19937_64& random) {
    std::vector<std::vector<Done>> done(size());
    for (int round = 0; round < 2'000'000; ++round) {
      const bool is_over = std::ranges::all_of(who, [&](size_t r) { return done[r].size() == expected; });
      if (is_over) break;
      const size_t rank = who[random() % who.size()];
      at(rank).progress(done[rank]);
    }
    for (const size_t rank : who) {
      ASSERT_EQ(done[rank].size(), expected) << "rank " << rank << " hangs";
      for (const Done& one : done[rank]) EXPECT_TRUE(one.status.is_ok()) << one.status.why;
    }
  }

 private:
  void ring(size_t rank) {
    const uint64_t one = 1;
    EXPECT_EQ(write(doorbells_[rank].get(), &one, sizeof(one)), static_cast<ssize_t>(sizeof(one)));
  }

  std::vector<std::unique_ptr<memory::Arena>> arenas_;
  std::vector<UniqueFd> doorbells_;
  std::deque<Queue<LocalBackend>> backends_;
};

}  // namespace rueda::backend_test
