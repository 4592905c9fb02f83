// The price of a call on one host: it grows with bytes, and the algorithm priced is the one that runs.
#include "rueda/backend/local/cost.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <memory>
#include <vector>

#include "rueda/backend/local/local.h"
#include "rueda/memory/arena.h"

namespace rueda::backend::local_cost_test {
namespace {

constexpr LocalAlgorithm kAlgorithms[] = {LocalAlgorithm::kInline, LocalAlgorithm::kOneShot,
                                          LocalAlgorithm::kRegistered, LocalAlgorithm::kStaged,
                                          LocalAlgorithm::kGathered};
constexpr size_t kSizes[] = {97, 1000, 4096, 65536, 131072, 131073, 1 << 20, 100 << 20};

TEST(LocalCost, grows_with_bytes_and_with_ranks_in_every_algorithm) {
  for (const double host_gbps : {0.0, 20.0}) {
    const MemoryCost memory{.host_gbps = host_gbps};
    for (const LocalAlgorithm algorithm : kAlgorithms) {
      for (size_t ranks = 2; ranks <= kMaxLocalRanks; ++ranks) {
        double last = 0;
        for (const size_t bytes : kSizes) {
          const double us = local_us(bytes, ranks, algorithm, memory);
          EXPECT_GT(us, last) << name_of(algorithm) << " " << bytes << " bytes, " << ranks << " ranks";
          EXPECT_GE(us, local_us(bytes, ranks - 1, algorithm, memory))
              << name_of(algorithm) << " " << ranks << " ranks";
          last = us;
        }
      }
    }
  }
}

TEST(LocalCost, can_be_worked_out_by_hand) {
  const MemoryCost memory{.latency_us = 1, .copy_gbps = 10, .reduce_gbps = 5};
  EXPECT_DOUBLE_EQ(local_us(0, 2, LocalAlgorithm::kInline, memory), 1);  // a barrier
  EXPECT_DOUBLE_EQ(local_us(100'000, 2, LocalAlgorithm::kOneShot, memory), 1 + 10 + 20);
  EXPECT_DOUBLE_EQ(local_us(100'000, 2, LocalAlgorithm::kRegistered, memory), 2 + 10 + 5);
  EXPECT_DOUBLE_EQ(local_us(100'000, 2, LocalAlgorithm::kStaged, memory), 3 + 10 + 2 * 5);
  EXPECT_EQ(local_us(100'000, 1, LocalAlgorithm::kStaged, memory), 0) << "a rank alone waits for nobody";
}

TEST(LocalCost, memory_that_all_ranks_share_limits_large_calls) {
  MemoryCost memory{.latency_us = 1, .copy_gbps = 10, .reduce_gbps = 5};
  const double alone = local_us(100 << 20, 8, LocalAlgorithm::kRegistered, memory);
  memory.host_gbps = 20;
  const double shared = local_us(100 << 20, 8, LocalAlgorithm::kRegistered, memory);
  EXPECT_GT(shared, alone);
  EXPECT_NEAR(shared, 16.0 * (100 << 20) / 20e3, 10);
}

TEST(LocalCost, tensors_in_arenas_save_a_copy) {
  const MemoryCost memory;
  for (const size_t bytes : {1 << 20, 64 << 20})
    EXPECT_LT(local_us(bytes, 4, LocalAlgorithm::kRegistered, memory),
              local_us(bytes, 4, LocalAlgorithm::kStaged, memory));
}

TEST(LocalCost, is_made_from_what_was_measured_between_ranks_of_a_host) {
  schedule::Topology topology = schedule::Topology::single_host(4);
  topology.local = {.latency_us = 3, .bandwidth_gbps = 12};
  topology.reduce_gbps = 4;
  const MemoryCost memory = memory_cost(topology);
  EXPECT_EQ(memory.latency_us, 3);
  EXPECT_EQ(memory.copy_gbps, 12);
  EXPECT_EQ(memory.reduce_gbps, 4);
}

// The ranks of one host in one thread.
class Host {
 public:
  explicit Host(size_t size) : groups_(size) {
    const auto memory =
        std::make_shared<memory::SharedMemory>(memory::SharedMemory::create(host_memory_bytes(size)).value());
    for (size_t i = 0; i < size; ++i) {
      arenas_.push_back(memory::Arena::create(4 << 20).value());
      bytes_in_arena_.push_back(static_cast<std::byte*>(arenas_[i]->allocate(1 << 20)));
      bytes_elsewhere_.emplace_back(1 << 20);
    }
    for (size_t me = 0; me < size; ++me) {
      groups_[me].me = static_cast<Rank>(me);
      std::vector<HostRank> seen(size);
      for (size_t i = 0; i < size; ++i) {
        groups_[me].members.push_back(static_cast<Rank>(i));
        seen[i].world_rank = static_cast<Rank>(i);
        seen[i].control_block = control_block_at(memory->base(), size, i);
        seen[i].doorbell = UniqueFd(eventfd(0, EFD_NONBLOCK));
        const memory::SharedMemory& arena = arenas_[i]->memory();
        if (i == me)
          seen[i].arena = &arena;
        else
          seen[i].adopted_arena =
              memory::SharedMemory::adopt(UniqueFd(dup(arena.fd())), 1, size_t{1} << 40).value();
      }
      backends_.push_back(
          std::make_unique<LocalBackend>(std::make_shared<LocalHost>(std::move(seen), me, memory)));
    }
  }

  // For an allreduce of this many bytes.
  std::string_view algorithm_of(size_t bytes, bool is_registered) {
    schedule::Spec spec{.dtype = DType::kUint8,
                        .count = static_cast<int64_t>(bytes),
                        .counts = {},
                        .scale = {},
                        .segment_counts = {}};
    std::vector<Segment> segments(backends_.size());
    for (size_t r = 0; r < backends_.size(); ++r) {
      std::byte* at = is_registered ? bytes_in_arena_[r] : bytes_elsewhere_[r].data();
      segments[r] = {.input = at, .output = at, .count = spec.count};
      backends_[r]->start(
          {.id = 1, .group = &groups_[r], .spec = spec, .segments = std::span(&segments[r], 1)});
    }
    std::vector<Done> done;
    for (int round = 0; done.size() < backends_.size() && round < 100'000; ++round)
      for (auto& backend : backends_) backend->progress(done);
    EXPECT_EQ(done.size(), backends_.size());
    return done.empty() ? "" : done.front().how;
  }

 private:
  std::vector<std::unique_ptr<memory::Arena>> arenas_;
  std::vector<std::byte*> bytes_in_arena_;
  std::vector<std::vector<std::byte>> bytes_elsewhere_;
  std::vector<Group> groups_;
  std::vector<std::unique_ptr<LocalBackend>> backends_;
};

TEST(LocalCost, prices_the_algorithm_that_runs) {
  for (const size_t ranks : {2u, 3u, 8u, 9u}) {
    Host host(ranks);
    const size_t limit = one_shot_limit_bytes(ranks);
    for (const size_t bytes : {size_t{1}, kInlineBytes, kInlineBytes + 1, kRegisteredFromBytes - 1,
                               kRegisteredFromBytes, limit, limit + 1, size_t{1} << 20}) {
      for (const bool is_registered : {false, true})
        EXPECT_EQ(host.algorithm_of(bytes, is_registered),
                  name_of(local_algorithm(bytes, ranks, is_registered)))
            << bytes << " bytes, " << ranks << " ranks, registered: " << is_registered;
    }
  }
}

}  // namespace
}  // namespace rueda::backend::local_cost_test
