// Every algorithm, proved by the verifier for world sizes 1 to 32. Its steps and bytes are compared
// with the literature.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "../sanitizers.h"
#include "rueda/schedule/blocks.h"
#include "rueda/schedule/verify.h"
#include "schedule_cases.h"

namespace rueda::schedule::algorithms_test {
namespace {

void expect_right(const Spec& spec, const Topology& topology, const Algorithm& algorithm) {
  if (!algorithm.cost_us(spec, topology)) return;
  const auto report = verify(spec, topology, algorithm);
  ASSERT_TRUE(report.is_ok()) << report.status().why << "\n" << describe(spec, topology);
}

class EveryAlgorithm : public testing::TestWithParam<const Algorithm*> {};

#if RUEDA_UNDER_ASAN  // ten times as slow; the release build goes further
constexpr Rank kMostRanks = 17;
#else
constexpr Rank kMostRanks = 32;
#endif

TEST_P(EveryAlgorithm, is_right_for_worlds_of_any_size_on_any_layout) {
  const Algorithm& algorithm = *GetParam();
  for (Rank n = 1; n <= kMostRanks; ++n) {
    for (Topology& topology : layouts(n)) {
      topology.chunk_bytes = 256;
      for (int64_t count : {int64_t{0}, int64_t{1}, int64_t{n - 1}, int64_t{n}, int64_t{67 * n + 5}}) {
        Spec spec = spec_of(algorithm.what, n, count);
        if (algorithm.name == "adasum") spec.op = ReduceOp::kAdasum;
        spec.dtype = (n + count) % 2 == 0 ? DType::kFloat32 : DType::kFloat16;
        spec.scale.divisor = n % 3 == 0 ? n : 1;
        expect_right(spec, topology, algorithm);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(EveryAlgorithm, is_right_for_every_type_width_operation_and_scale) {
  const Algorithm& algorithm = *GetParam();
  for (Rank n : {1, 2, 3, 5, 8}) {
    for (const Topology& topology : layouts(n)) {
      for (DType dtype : {DType::kFloat16, DType::kFloat32, DType::kInt64}) {
        for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kMin}) {
          for (const Scale scale : {Scale{}, Scale{.factor = 0.5, .divisor = n}}) {
            Spec spec = spec_of(algorithm.what, n, 50 * n + 3);
            spec.dtype = dtype;
            spec.op = algorithm.name == "adasum" ? ReduceOp::kAdasum : op;
            spec.scale = scale;
            expect_right(spec, topology, algorithm);
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

TEST_P(EveryAlgorithm, sends_nothing_in_a_group_of_one) {
  const Algorithm& algorithm = *GetParam();
  Spec spec = spec_of(algorithm.what, 1, 100);
  if (algorithm.name == "adasum") spec.op = ReduceOp::kAdasum;
  const Topology topology = Topology::single_host(1);
  const auto report = verify(spec, topology, algorithm);
  ASSERT_TRUE(report.is_ok()) << report.status().why;
  EXPECT_EQ(report.value().ranks[0].messages_sent, 0);
}

TEST_P(EveryAlgorithm, bounds_its_steps_for_huge_buffers) {
  const Algorithm& algorithm = *GetParam();
  for (const Topology& topology :
       {Topology::single_host(2), Topology::regular(4, 4), Topology::regular(4, 8)}) {
    Spec spec = spec_of(algorithm.what, topology.size(), int64_t{1} << 36);
    if (algorithm.name == "adasum") spec.op = ReduceOp::kAdasum;
    if (!algorithm.cost_us(spec, topology)) continue;
    const Schedule schedule = algorithm.build(spec, topology, topology.size() / 2);
    EXPECT_LE(schedule.steps.size(), size_t{1} << 17) << describe(spec, topology);
  }
}

// The largest weight of VGG-16 has 411 MB. Large messages arrive in bursts that leave links idle.
TEST(HalvingDoubling, sends_large_tensors_in_chunks_of_the_usual_size) {
  const Topology topology = Topology::regular(8, 1);
  const Spec spec = spec_of(Collective::kAllreduce, 8, 103'000'000);
  const Algorithm* algorithm = find_algorithm(Collective::kAllreduce, "halving_doubling");
  ASSERT_NE(algorithm, nullptr);
  for (const Step& step : algorithm->build(spec, topology, 0).steps) {
    if (step.kind != StepKind::kSend) continue;
    EXPECT_LE(step.from.count * static_cast<int64_t>(size_of(spec.dtype)), topology.chunk_bytes);
  }
}

TEST_P(EveryAlgorithm, predicts_a_cost_that_grows_with_bytes) {
  const Algorithm& algorithm = *GetParam();
  const Topology topology = Topology::regular(2, 4);
  Spec small = spec_of(algorithm.what, 8, 1000);
  Spec large = spec_of(algorithm.what, 8, 100'000'000);
  if (algorithm.what == Collective::kAlltoall) {
    small.counts.assign(64, 10);
    large.counts.assign(64, 1'000'000);
  }
  if (algorithm.name == "adasum") small.op = large.op = ReduceOp::kAdasum;
  const auto few = algorithm.cost_us(small, topology);
  const auto many = algorithm.cost_us(large, topology);
  ASSERT_TRUE(few && many);
  EXPECT_GT(*few, 0);
  if (algorithm.what == Collective::kBarrier)
    EXPECT_EQ(*many, *few);
  else
    EXPECT_GT(*many, *few);
}

// Those for calls with a wire type have a suite of their own.
std::vector<const Algorithm*> all_algorithms() {
  std::vector<const Algorithm*> all;
  for (const Algorithm& algorithm : algorithms())
    if (!algorithm.is_encoded) all.push_back(&algorithm);
  return all;
}

INSTANTIATE_TEST_SUITE_P(schedule, EveryAlgorithm, testing::ValuesIn(all_algorithms()), [](const auto& info) {
  std::string name = std::string(name_of(info.param->what)) + "_" + std::string(info.param->name);
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name;
});

// What the literature says of one rank, for one chunk and a count that divides evenly.
struct Claim {
  Collective what;
  const char* name;
  Rank ranks;
  int64_t rounds;
  int64_t bytes_sent;  // by the busiest rank
};

constexpr int64_t kCount = 7680;  // elements: 64-byte blocks for 2, 3, 4, 5, 6, 8, 10, 12 and 16 ranks
constexpr int64_t kBytes = 4 * kCount;

void expect_claim(const Claim& claim) {
  Topology topology = Topology::single_host(claim.ranks);
  topology.chunk_bytes = 1 << 20;
  Spec spec = spec_of(claim.what, claim.ranks, kCount);
  if (!spec.counts.empty()) {
    std::fill(spec.counts.begin(), spec.counts.end(), kCount / static_cast<int64_t>(spec.counts.size()));
    spec.count = kCount;
  }
  if (claim.name == std::string("adasum")) spec.op = ReduceOp::kAdasum;
  const auto report = verify(spec, topology, *find_algorithm(claim.what, claim.name));
  ASSERT_TRUE(report.is_ok()) << report.status().why;
  int64_t busiest = 0;
  for (const RankTotals& totals : report.value().ranks) busiest = std::max(busiest, totals.bytes_sent);
  EXPECT_EQ(report.value().rounds, claim.rounds) << claim.name << " of " << claim.ranks;
  EXPECT_EQ(busiest, claim.bytes_sent) << claim.name << " of " << claim.ranks;
}

TEST(schedule_literature, bandwidth_optimal_allreduces_send_2_n_minus_1_over_n_of_the_buffer) {
  for (Rank n : {2, 3, 5, 8, 16}) {
    const int64_t bytes = 2 * (n - 1) * kBytes / n;
    expect_claim({Collective::kAllreduce, "direct", n, 2, bytes});
    expect_claim({Collective::kAllreduce, "ring", n, 2 * (n - 1), bytes});
  }
  for (Rank n : {2, 4, 8, 16})
    expect_claim({Collective::kAllreduce, "halving_doubling", n, 2 * ceil_log2(n), 2 * (n - 1) * kBytes / n});
}

TEST(schedule_literature, latency_optimal_allreduces_take_log_n_steps_or_one) {
  for (Rank n : {2, 4, 8, 16}) {
    expect_claim({Collective::kAllreduce, "recursive_doubling", n, ceil_log2(n), ceil_log2(n) * kBytes});
    expect_claim({Collective::kAllreduce, "adasum", n, ceil_log2(n), ceil_log2(n) * kBytes});
    expect_claim({Collective::kAllreduce, "flat_gather", n, 1, (n - 1) * kBytes});
  }
}

TEST(schedule_literature, folding_in_costs_two_steps_when_n_is_no_power_of_two) {
  expect_claim({Collective::kAllreduce, "recursive_doubling", 7, 4, 3 * kBytes});
}

// A rank in a corner of two had to take in the whole buffer of the other one and send it the whole result:
// 2.5 buffers sent by the busiest of 7 ranks, 2.98 by that of 127.
TEST(HalvingDoubling, sends_hardly_more_than_two_buffers_for_any_number_of_ranks) {
  for (const Rank n : {3, 5, 6, 7, 12, 15, 31}) {
    Topology topology = Topology::regular(n, 1);
    topology.chunk_bytes = 1 << 20;
    const auto report = verify(spec_of(Collective::kAllreduce, n, kCount), topology,
                               *find_algorithm(Collective::kAllreduce, "halving_doubling"));
    ASSERT_TRUE(report.is_ok()) << report.status().why;
    for (const RankTotals& totals : report.value().ranks) {
      EXPECT_LT(totals.bytes_sent, 2 * kBytes * 21 / 20) << n;
      EXPECT_GE(totals.bytes_sent, 2 * (n - 1) * kBytes / n * 7 / 10) << n;
    }
    EXPECT_EQ(report.value().rounds, 2 * ceil_log2(n)) << n;
  }
}

TEST(schedule_literature, reducescatters_and_allgathers_send_everything_but_one_block) {
  for (Rank n : {2, 3, 8, 16}) {
    const int64_t bytes = (n - 1) * kBytes / n;
    expect_claim({Collective::kReducescatter, "direct", n, 1, bytes});
    expect_claim({Collective::kReducescatter, "ring", n, n - 1, bytes});
    expect_claim({Collective::kAllgather, "direct", n, 1, bytes});
    expect_claim({Collective::kAllgather, "ring", n, n - 1, bytes});
    if (n != 3) expect_claim({Collective::kAllgather, "bruck", n, ceil_log2(n), bytes});
  }
}

TEST(schedule_literature, broadcasts_take_log_n_steps_or_send_the_buffer_about_once_or_twice) {
  for (Rank n : {2, 4, 8, 16}) {
    expect_claim({Collective::kBroadcast, "binomial", n, ceil_log2(n), ceil_log2(n) * kBytes});
    expect_claim({Collective::kBroadcast, "chain", n, n - 1, kBytes});
    const int64_t root_bytes = 2 * (n - 1) * kBytes / n;
    expect_claim({Collective::kBroadcast, "scatter_allgather", n, n == 2 ? 1 : 2, root_bytes});
  }
}

TEST(schedule_literature, alltoalls_send_each_block_once_or_in_log_n_steps) {
  for (Rank n : {2, 4, 8, 16}) {
    expect_claim({Collective::kAlltoall, "pairwise", n, 1, (n - 1) * (kBytes / (n * n))});
    expect_claim(
        {Collective::kAlltoall, "bruck", n, ceil_log2(n), ceil_log2(n) * n / 2 * (kBytes / (n * n))});
  }
}

TEST(schedule_literature, a_barrier_takes_log_n_steps_without_bytes) {
  for (Rank n : {2, 3, 8, 15, 16}) expect_claim({Collective::kBarrier, "dissemination", n, ceil_log2(n), 0});
}

// Bytes that cross between hosts.
int64_t bytes_between_hosts(const Spec& spec, const Topology& topology, const Algorithm& algorithm) {
  int64_t bytes = 0;
  for (Rank rank = 0; rank < topology.size(); ++rank)
    for (const Step& step : algorithm.build(spec, topology, rank).steps)
      if (step.kind == StepKind::kSend && topology.host_of[step.peer] != topology.host_of[rank])
        bytes += 4 * step.from.count;
  return bytes;
}

TEST(schedule_literature, two_level_algorithms_cross_between_hosts_once_per_host) {
  const Topology topology = Topology::regular(4, 4);
  const auto crossing = [&](Collective what, const char* name) {
    Spec spec = spec_of(what, 16, kCount);
    if (!spec.counts.empty()) spec.counts.assign(16, kCount / 16);
    spec.count = kCount;
    return bytes_between_hosts(spec, topology, *find_algorithm(what, name));
  };
  EXPECT_EQ(crossing(Collective::kAllreduce, "two_level"), 4 * (2 * 3 * kBytes / 4));
  EXPECT_EQ(crossing(Collective::kAllreduce, "direct"), 4 * 4 * (2 * 3 * kBytes / 4));
  EXPECT_EQ(crossing(Collective::kAllreduce, "two_level_doubling"), 4 * 2 * kBytes);
  EXPECT_EQ(crossing(Collective::kReducescatter, "two_level"), 4 * (3 * kBytes / 4));
  EXPECT_EQ(crossing(Collective::kAllgather, "two_level"), 3 * kBytes);
  EXPECT_EQ(crossing(Collective::kBroadcast, "two_level"), 3 * kBytes);
  EXPECT_EQ(crossing(Collective::kBroadcast, "chain"), 3 * kBytes);
}

// With 1,000 ranks, an exchange of all with all needs 1,000 connections for each.
TEST(TwoLevelDoubling, lets_a_rank_talk_to_its_entry_and_an_entry_to_few_others) {
  const Algorithm& algorithm = *find_algorithm(Collective::kAllreduce, "two_level_doubling");
  for (const int32_t hosts : {2, 5, 16, 20, 125}) {
    const Topology topology = Topology::regular(hosts, 8);
    const Spec spec = spec_of(Collective::kAllreduce, topology.size(), 1);
    const std::string_view chosen = choose(spec, topology, "").value().algorithm->name;
    EXPECT_TRUE(hosts < 16 || chosen == algorithm.name) << chosen << " between " << hosts;
    for (Rank rank = 0; rank < topology.size(); ++rank) {
      std::set<Rank> peers;
      for (const Step& step : algorithm.build(spec, topology, rank).steps)
        if (is_message(step)) peers.insert(step.peer);
      const auto most = static_cast<size_t>(rank % 8 == 0 ? 7 + ceil_log2(hosts) : 1);
      EXPECT_LE(peers.size(), most) << rank << " on " << hosts << " hosts";
    }
  }
}

}  // namespace
}  // namespace rueda::schedule::algorithms_test
