// Short reductions and barriers among many ranks of one host.
#include "rueda/backend/local/gathered.h"

#include <gtest/gtest.h>

#include <numeric>

#include "backend_local_ranks.h"
#include "rueda/backend/local/cost.h"
#include "rueda/kernels/kernels.h"

namespace rueda::backend::gathered_test {
namespace {

using backend_test::Ranks;

constexpr size_t kArenaBytes = 1 << 16;

// Ranks with a group of all of them, and a tensor of `count` elements on each.
class Meeting {
 public:
  explicit Meeting(size_t size, const std::vector<int32_t>& nodes = {})
      : ranks_(size, kArenaBytes, nodes), groups_(size) {
    for (size_t rank = 0; rank < size; ++rank) {
      groups_[rank].members.resize(size);
      std::iota(groups_[rank].members.begin(), groups_[rank].members.end(), 0);
      groups_[rank].me = static_cast<Rank>(rank);
      all_.push_back(rank);
    }
  }

  Ranks& ranks() { return ranks_; }
  [[nodiscard]] const std::vector<size_t>& all() const { return all_; }

  void start(size_t rank, CallId id, std::vector<float>& tensor, uint16_t generation = 0) {
    const schedule::Spec spec{
        .count = static_cast<int64_t>(tensor.size()), .counts = {}, .scale = {}, .segment_counts = {}};
    ranks_.at(rank).start({.id = id,
                           .group = &groups_[rank],
                           .spec = spec,
                           .input = tensor.data(),
                           .output = tensor.data(),
                           .generation = generation});
  }
  void start_barrier(size_t rank, CallId id) {
    const schedule::Spec spec{.what = Collective::kBarrier, .counts = {}, .scale = {}, .segment_counts = {}};
    ranks_.at(rank).start({.id = id, .group = &groups_[rank], .spec = spec});
  }

 private:
  Ranks ranks_;
  std::vector<Group> groups_;
  std::vector<size_t> all_;
};

// Values whose sum depends on the order in which they are added.
std::vector<std::vector<float>> make_tensors(size_t ranks, size_t count, std::mt19937_64& random) {
  std::vector<std::vector<float>> tensors(ranks, std::vector<float>(count));
  for (auto& tensor : tensors)
    for (float& value : tensor)
      value = static_cast<float>(static_cast<int64_t>(random() % 2'000'003) - 1'000'001) / 3;
  return tensors;
}

std::vector<float> rank_order_sum(const std::vector<std::vector<float>>& tensors) {
  std::vector<const void*> sources;
  for (const auto& tensor : tensors) sources.push_back(tensor.data());
  std::vector<float> sum(tensors.front().size());
  kernels::reduce_sources(ReduceOp::kSum, DType::kFloat32, sources, sum.data(), sum.size(), {});
  return sum;
}

TEST(Gathered, has_the_bits_of_the_rank_order_sum_in_one_team_and_in_several) {
  std::mt19937_64 random(3);
  const auto two_nodes = [](size_t ranks) {
    std::vector<int32_t> nodes;
    for (size_t rank = 0; rank < ranks; ++rank) nodes.push_back(static_cast<int32_t>(rank % 2));
    return nodes;
  };
  for (const size_t size : {9u, 17u, 64u, 65u, 80u}) {
    Meeting meeting(size, two_nodes(size));
    for (CallId id = 1; id <= 4; ++id) {
      auto tensors = make_tensors(size, id == 4 ? 24 : id, random);
      const std::vector<float> sum = rank_order_sum(tensors);
      for (const size_t rank : meeting.all()) meeting.start(rank, id, tensors[rank]);
      meeting.ranks().run(meeting.all(), 1, random);
      if (testing::Test::HasFatalFailure()) return;
      for (const auto& tensor : tensors) ASSERT_EQ(tensor, sum) << size << " ranks, call " << id;
    }
  }
}

TEST(Gathered, runs_exactly_where_its_price_says) {
  std::mt19937_64 random(1);
  for (const size_t size : {kMostDirectRanks, kMostDirectRanks + 1}) {
    for (const size_t count : {size_t{1}, kInlineBytes / 4, kInlineBytes / 4 + 1}) {
      Meeting meeting(size);
      auto tensors = make_tensors(size, count, random);
      for (const size_t rank : meeting.all()) meeting.start(rank, 1, tensors[rank]);
      meeting.ranks().run(meeting.all(), 1, random);
      EXPECT_EQ(meeting.ranks().at(0).last_how(), name_of(local_algorithm(count * 4, size, false)));
    }
  }
}

TEST(Gathered, nobody_passes_a_barrier_before_the_last_rank_has_come) {
  constexpr size_t kSize = 70;
  Meeting meeting(kSize);
  std::vector<Done> done;
  for (size_t late = 0; late < kSize; late += 23) {
    for (const size_t rank : meeting.all())
      if (rank != late) meeting.start_barrier(rank, 1);
    for (int round = 0; round < 5; ++round)
      for (const size_t rank : meeting.all()) meeting.ranks().at(rank).progress(done);
    EXPECT_EQ(done.size(), 0u) << "without rank " << late;
    meeting.start_barrier(late, 1);
    for (int round = 0; round < 8; ++round)
      for (const size_t rank : meeting.all()) meeting.ranks().at(rank).progress(done);
    EXPECT_EQ(done.size(), kSize);
    done.clear();
  }
}

// Every rank sleeps as soon as it can, and moves only when its doorbell has rung. So all that moves a call
// are the rings, and their number is what a host with few cores pays for.
TEST(Gathered, a_call_of_n_ranks_that_sleep_takes_few_more_than_n_rings) {
  for (const size_t size : {16u, 64u, 80u}) {
    Meeting meeting(size);
    std::mt19937_64 random(size);
    auto tensors = make_tensors(size, 1, random);
    std::vector<size_t> order = meeting.all();
    std::ranges::shuffle(order, random);
    std::vector<Done> done;
    size_t rings = 0;
    const auto sleep = [&](size_t rank) {
      while (!meeting.ranks().at(rank).prepare_sleep()) {
        meeting.ranks().at(rank).wake_up();
        meeting.ranks().at(rank).progress(done);
      }
    };
    const auto serve_rings = [&] {
      for (bool has_rung = true; has_rung;) {
        has_rung = false;
        for (const size_t rank : meeting.all()) {
          if (!meeting.ranks().has_rung(rank)) continue;
          has_rung = true;
          ++rings;
          meeting.ranks().at(rank).wake_up();
          meeting.ranks().at(rank).progress(done);
          sleep(rank);
        }
      }
    };
    for (const size_t rank : order) {
      meeting.start(rank, 1, tensors[rank]);
      sleep(rank);
      serve_rings();
    }
    EXPECT_EQ(done.size(), size) << "a rank sleeps on";
    EXPECT_LE(rings, size + size / 4) << size << " ranks";
  }
}

// Some ranks had announced the call, one never will. The next call takes its place.
TEST(Gathered, a_cancelled_call_leaves_tensors_alone_and_the_next_one_runs) {
  constexpr size_t kSize = 70;
  Meeting meeting(kSize);
  std::mt19937_64 random(8);
  for (uint16_t generation = 0; generation < 4; ++generation) {
    auto tensors = make_tensors(kSize, 3, random);
    const auto before = tensors;
    const size_t absent = random() % kSize;
    std::vector<Done> done;
    for (const size_t rank : meeting.all())
      if (rank != absent) meeting.start(rank, 1, tensors[rank], generation);
    for (int round = 0; round < 500; ++round) meeting.ranks().at(random() % kSize).progress(done);
    EXPECT_EQ(done.size(), 0u);
    for (const size_t rank : meeting.all())
      if (rank != absent) meeting.ranks().at(rank).cancel(1, {});
    for (const size_t rank : meeting.all()) meeting.ranks().at(rank).progress(done);
    EXPECT_EQ(done.size(), kSize - 1);
    EXPECT_EQ(tensors, before);

    const std::vector<float> sum = rank_order_sum(tensors);
    for (const size_t rank : meeting.all())
      meeting.start(rank, 2, tensors[rank], static_cast<uint16_t>(generation + 1));
    meeting.ranks().run(meeting.all(), 1, random);
    if (testing::Test::HasFatalFailure()) return;
    for (const auto& tensor : tensors) ASSERT_EQ(tensor, sum) << "generation " << generation;
  }
}

TEST(Gathered, an_abort_fails_the_call_on_this_rank) {
  Meeting meeting(12);
  std::vector<float> tensor{1};
  std::vector<Done> done;
  meeting.start(3, 1, tensor);
  meeting.ranks().at(3).progress(done);
  meeting.ranks().at(3).abort({Code::kPeerLost, "gone"});
  meeting.ranks().at(3).progress(done);
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done.front().status.code, Code::kPeerLost);
}

}  // namespace
}  // namespace rueda::backend::gathered_test
