// Allreduces among several ranks of one host, and what calls of all kinds have in common.
#include "rueda/backend/local/local.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <random>

#include "backend_local_ranks.h"
#include "rueda/kernels/kernels.h"

namespace rueda::backend::local_test {
namespace {

using backend_test::Ranks;

struct Tensor {
  std::vector<std::byte> own_input, own_output;
  std::byte *input = nullptr, *output = nullptr;
};

struct Case {
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  std::vector<int64_t> counts;
  Scale scale;
  double prescale = 1.0;
  std::vector<bool> in_arena;  // [rank]
  bool in_place = true;
  Rank joined = -1;
};

void fill(DType dtype, std::byte* at, int64_t count, std::mt19937_64& random) {
  for (int64_t i = 0; i < count; ++i) {
    const float value = static_cast<float>(static_cast<int64_t>(random() % 2000) - 1000) / 64;
    if (dtype == DType::kFloat32) reinterpret_cast<float*>(at)[i] = value;
    if (dtype == DType::kFloat64) reinterpret_cast<double*>(at)[i] = value;
    if (dtype == DType::kInt32) reinterpret_cast<int32_t*>(at)[i] = static_cast<int32_t>(value * 64);
    if (dtype == DType::kUint8) reinterpret_cast<uint8_t*>(at)[i] = static_cast<uint8_t>(random());
    if (dtype == DType::kBfloat16)  // the upper half of a float32
      std::memcpy(at + 2 * i, reinterpret_cast<const std::byte*>(&value) + 2, 2);
  }
}

// One rank's part in a case.
struct Member {
  bool has_joined = false;  // so it gives nothing and takes nothing
  Group group;
  std::vector<Tensor> tensors;
  std::vector<Segment> segments;
  std::vector<std::byte> contribution;  // to the result: scaled, one tensor after another
};

Member make_member(size_t rank, Ranks& ranks, const Case& c, std::mt19937_64& random) {
  const size_t element = size_of(c.dtype);
  Member member;
  member.has_joined = c.joined == static_cast<Rank>(rank);
  for (size_t i = 0; i < ranks.size(); ++i) member.group.members.push_back(static_cast<Rank>(i));
  member.group.me = static_cast<Rank>(rank);
  for (const int64_t count : c.counts) {
    const size_t bytes = static_cast<size_t>(count) * element;
    const auto allocate = [&](std::vector<std::byte>& own) {
      if (c.in_arena[rank]) return static_cast<std::byte*>(ranks.arena(rank).allocate(bytes));
      own.resize(bytes + 1);
      return own.data();
    };
    Tensor& tensor = member.tensors.emplace_back();
    tensor.input = allocate(tensor.own_input);
    tensor.output = c.in_place ? tensor.input : allocate(tensor.own_output);
    fill(c.dtype, tensor.input, count, random);
    const size_t at = member.contribution.size();
    member.contribution.resize(at + bytes);
    std::byte* contribution = member.contribution.data() + at;
    if (member.has_joined)
      kernels::fill_identity(c.op, c.dtype, contribution, static_cast<size_t>(count));
    else
      kernels::scale(c.dtype, tensor.input, contribution, static_cast<size_t>(count), {.factor = c.prescale});
    member.segments.push_back(member.has_joined
                                  ? Segment{.count = count}
                                  : Segment{.input = tensor.input, .output = tensor.output, .count = count});
  }
  return member;
}

// What every rank must get: all contributions in rank order, rounded once.
std::vector<std::byte> expected_of(const Case& c, const std::vector<Member>& members, size_t count) {
  std::vector<const void*> sources;
  for (const Member& member : members) sources.push_back(member.contribution.data());
  std::vector<std::byte> result(count * size_of(c.dtype));
  kernels::reduce_sources(c.op, c.dtype, sources, result.data(), count, c.scale);
  return result;
}

void check(Ranks& ranks, const Case& c, uint64_t seed) {
  std::mt19937_64 random(seed);
  const size_t n = ranks.size(), element = size_of(c.dtype);
  const auto total = static_cast<size_t>(std::accumulate(c.counts.begin(), c.counts.end(), int64_t{0}));
  std::vector<Member> members;
  for (size_t rank = 0; rank < n; ++rank) members.push_back(make_member(rank, ranks, c, random));
  const std::vector<std::byte> expected = expected_of(c, members, total);
  std::vector<size_t> who;
  for (size_t rank = 0; rank < n; ++rank) {
    who.push_back(rank);
    schedule::Spec spec{.dtype = c.dtype,
                        .op = c.op,
                        .count = static_cast<int64_t>(total),
                        .counts = {},
                        .scale = c.scale,
                        .segment_counts = {}};
    ranks.at(rank).start({.id = 1,
                          .group = &members[rank].group,
                          .spec = spec,
                          .segments = members[rank].segments,
                          .prescale = c.prescale});
  }
  ranks.run(who, 1, random);
  for (size_t rank = 0; rank < n; ++rank) {
    size_t at = 0;
    for (size_t t = 0; t < c.counts.size() && !members[rank].has_joined; ++t) {
      const size_t bytes = static_cast<size_t>(c.counts[t]) * element;
      if (bytes == 0) continue;
      ASSERT_EQ(std::memcmp(members[rank].tensors[t].output, expected.data() + at, bytes), 0)
          << "rank " << rank << " of " << n << ", tensor " << t << " of " << c.counts[t] << " x "
          << name_of(c.dtype) << ", seed " << seed;
      at += bytes;
    }
    if (!c.in_arena[rank]) continue;
    for (Tensor& tensor : members[rank].tensors) {
      ranks.arena(rank).release(tensor.input);
      if (tensor.output != tensor.input) ranks.arena(rank).release(tensor.output);
    }
  }
}

TEST(LocalBackend, gives_the_rank_order_sum_for_every_size_place_and_type) {
  for (const size_t n : {2u, 3u, 4u, 7u}) {
    Ranks ranks(n);
    std::mt19937_64 random(n);
    for (uint64_t seed = 1; seed <= 60; ++seed) {
      Case c;
      const std::vector<DType> types{DType::kFloat32, DType::kFloat32, DType::kBfloat16,
                                     DType::kInt32,   DType::kFloat64, DType::kUint8};
      c.dtype = types[random() % types.size()];
      const std::vector<ReduceOp> ops{ReduceOp::kSum, ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kProduct};
      c.op = ops[random() % ops.size()];
      const std::vector<int64_t> sizes{0, 1, 7, 24, 25, 1000, 4097, 33000, 70001, 300007};
      const size_t tensors = 1 + random() % 4;
      for (size_t t = 0; t < tensors; ++t) c.counts.push_back(sizes[random() % sizes.size()]);
      if (random() % 2 == 0 && is_floating(c.dtype)) c.scale.divisor = static_cast<int64_t>(n);
      if (random() % 4 == 0 && is_floating(c.dtype)) c.prescale = 0.3;
      const auto where = random() % 3;
      for (size_t rank = 0; rank < n; ++rank)
        c.in_arena.push_back(where == 0 || (where == 1 && random() % 2 == 0));
      c.in_place = random() % 2 == 0;
      if (random() % 5 == 0) c.joined = static_cast<Rank>(random() % n);
      check(ranks, c, seed);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(LocalBackend, large_tensors_come_out_right_wherever_they_lie) {
  Ranks ranks(2);
  for (const bool in_arena : {false, true})
    check(ranks, {.counts = {3'000'001, 5}, .scale = {.divisor = 2}, .in_arena = {in_arena, in_arena}}, 5);
}

// Overlapping groups in one global order: slots and stages are reused by calls of other pairs.
TEST(LocalBackend, overlapping_groups_keep_their_calls_apart) {
  Ranks ranks(3);
  std::mt19937_64 random(11);
  const std::vector<std::vector<Rank>> sets{{0, 1}, {1, 2}, {0, 2}, {0, 1, 2}};
  for (int repeat = 0; repeat < 30; ++repeat) {
    std::vector<std::unique_ptr<Group>> groups;
    std::vector<std::vector<float>> buffers;
    std::vector<size_t> calls(3, 0);
    struct Expectation {
      size_t buffer;
      float value;
    };
    std::vector<Expectation> expectations;
    buffers.reserve(64);
    for (int k = 0; k < 8; ++k) {
      const std::vector<Rank>& members = sets[random() % sets.size()];
      const size_t count = std::vector<size_t>{3, 500, 30000, 100000}[random() % 4];
      float sum = 0;
      for (const Rank rank : members) sum += static_cast<float>(rank + 1 + k);
      for (const Rank rank : members) {
        groups.push_back(std::make_unique<Group>());
        groups.back()->members = members;
        groups.back()->me = static_cast<Rank>(std::ranges::find(members, rank) - members.begin());
        buffers.emplace_back(count, static_cast<float>(rank + 1 + k));
        expectations.push_back({buffers.size() - 1, sum});
        schedule::Spec spec{
            .count = static_cast<int64_t>(count), .counts = {}, .scale = {}, .segment_counts = {}};
        const auto r = static_cast<size_t>(rank);
        ranks.at(r).start({.id = static_cast<CallId>(k),
                           .group = groups.back().get(),
                           .spec = spec,
                           .input = buffers.back().data(),
                           .output = buffers.back().data()});
        ++calls[r];
      }
    }
    std::vector<std::vector<Done>> done(3);
    for (int round = 0; round < 200000; ++round) {
      const size_t rank = random() % 3;
      ranks.at(rank).progress(done[rank]);
    }
    for (size_t r = 0; r < 3; ++r) ASSERT_EQ(done[r].size(), calls[r]);
    for (const Expectation& e : expectations)
      ASSERT_TRUE(std::ranges::all_of(buffers[e.buffer], [&](float x) { return x == e.value; }));
  }
}

TEST(LocalBackend, a_sleeper_is_rung_when_its_peer_announces) {
  Ranks ranks(2);
  Group group{.members = {0, 1}};
  std::vector<Group> groups(2, group);
  groups[0].me = 0, groups[1].me = 1;
  float x[2] = {1, 2};
  const auto start = [&](size_t r) {
    schedule::Spec spec{.count = 1, .counts = {}, .scale = {}, .segment_counts = {}};
    ranks.at(r).start({.id = 1, .group = &groups[r], .spec = spec, .input = &x[r], .output = &x[r]});
  };
  std::vector<Done> done[2];
  start(0);
  EXPECT_FALSE(ranks.at(0).prepare_sleep()) << "a call waits to be begun";
  ranks.at(0).wake_up();
  ranks.at(0).progress(done[0]);
  ranks.at(0).progress(done[0]);
  EXPECT_TRUE(ranks.at(0).prepare_sleep());
  EXPECT_FALSE(ranks.has_rung(0));
  start(1);
  ranks.at(1).progress(done[1]);
  ranks.at(1).progress(done[1]);
  EXPECT_TRUE(ranks.has_rung(0));
  ranks.at(0).wake_up();
  ranks.at(0).progress(done[0]);
  EXPECT_EQ(done[0].size(), 1u);
  EXPECT_EQ(x[0], 3.0F);
}

TEST(LocalBackend, abort_fails_what_runs_and_what_waits) {
  Ranks ranks(2);
  Group group{.members = {0, 1}, .me = 0};
  float x = 1;
  schedule::Spec spec{.count = 1, .counts = {}, .scale = {}, .segment_counts = {}};
  for (CallId id = 1; id <= 2; ++id)
    ranks.at(0).start({.id = id, .group = &group, .spec = spec, .input = &x, .output = &x});
  std::vector<Done> done;
  ranks.at(0).progress(done);
  ranks.at(0).abort({Code::kPeerLost, "gone"});
  ranks.at(0).progress(done);
  ASSERT_EQ(done.size(), 2u);
  for (const Done& one : done) EXPECT_EQ(one.status.code, Code::kPeerLost);
  EXPECT_EQ(x, 1.0F);
  EXPECT_TRUE(ranks.at(0).is_idle());
}

TEST(LocalBackend, announcing_other_sizes_is_a_fault_not_an_overrun) {
  Ranks ranks(2);
  std::vector<Group> groups(2, Group{.members = {0, 1}});
  groups[0].me = 0, groups[1].me = 1;
  std::vector<float> x(1000, 1), y(2000, 1);
  for (size_t r = 0; r < 2; ++r) {
    std::vector<float>& mine = r == 0 ? x : y;
    schedule::Spec spec{
        .count = static_cast<int64_t>(mine.size()), .counts = {}, .scale = {}, .segment_counts = {}};
    ranks.at(r).start(
        {.id = 1, .group = &groups[r], .spec = spec, .input = mine.data(), .output = mine.data()});
  }
  std::vector<Done> done[2];
  for (int i = 0; i < 10; ++i)
    for (size_t r = 0; r < 2; ++r) ranks.at(r).progress(done[r]);
  for (auto& one : done) {
    ASSERT_EQ(one.size(), 1u);
    EXPECT_EQ(one[0].status.code, Code::kInternal);
  }
}

}  // namespace
}  // namespace rueda::backend::local_test
