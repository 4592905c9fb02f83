// Allgather, broadcast, reducescatter and alltoall among several ranks of one host. Every result is compared
// with what the definition of the collective gives.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <random>

#include "backend_local_ranks.h"
#include "rueda/backend/packing.h"
#include "rueda/kernels/kernels.h"

namespace rueda::backend::local_exchange_test {
namespace {

using backend_test::Ranks;
using Bytes = std::vector<std::byte>;

constexpr std::byte kUntouched{0xa5};

struct Case {
  Collective what = Collective::kAllgather;
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  std::vector<std::vector<int64_t>> counts;  // [tensor][as in Segment::counts; of a broadcast: elements]
  Rank root = -1;
  Scale scale = {};
  double prescale = 1.0;
  std::vector<bool> in_arena;  // [rank]
  bool is_in_place = false;    // the root of a broadcast
  Rank joined = -1;
  [[nodiscard]] size_t element() const { return size_of(dtype); }
};

size_t sum(std::span<const int64_t> counts) {
  return static_cast<size_t>(std::accumulate(counts.begin(), counts.end(), int64_t{0}));
}

// One tensor of one rank.
struct Tensor {
  Bytes own_input, own_output;
  std::byte *input = nullptr, *output = nullptr;
  size_t given = 0, taken = 0;  // elements
};

struct Member {
  Group group;
  std::vector<Tensor> tensors;
  std::vector<Segment> segments;
};

class World {
 public:
  World(Ranks& ranks, const Case& c, uint64_t seed) : ranks_(ranks), case_(c), random_(seed), seed_(seed) {
    for (size_t rank = 0; rank < ranks.size(); ++rank) members_.push_back(make_member(rank));
  }
  ~World() {
    for (size_t rank = 0; rank < members_.size(); ++rank)
      for (Tensor& tensor : members_[rank].tensors)
        if (case_.in_arena[rank]) release(rank, tensor);
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  backend_test::TestCall call(size_t rank) {
    return {.id = 1,
            .group = &members_[rank].group,
            .spec = spec(),
            .segments = members_[rank].segments,
            .prescale = case_.prescale};
  }
  void start_and_run() {
    std::vector<size_t> who(ranks_.size());
    std::iota(who.begin(), who.end(), 0u);
    for (const size_t rank : who) ranks_.at(rank).start(call(rank));
    ranks_.run(who, 1, random_);
  }
  void expect_results() {
    for (size_t rank = 0; rank < members_.size(); ++rank) {
      if (has_joined(rank)) continue;
      for (size_t t = 0; t < members_[rank].tensors.size(); ++t) {
        const Tensor& tensor = members_[rank].tensors[t];
        const Bytes expected = expected_of(rank, t);
        ASSERT_EQ(expected.size(), tensor.taken * case_.element());
        ASSERT_TRUE(expected.empty() || std::memcmp(tensor.output, expected.data(), expected.size()) == 0)
            << name_of(case_.what) << ", rank " << rank << " of " << members_.size() << ", tensor " << t
            << ", seed " << seed_ << ", " << ranks_.at(rank).last_how();
      }
    }
  }
  void expect_untouched() {
    for (const Member& member : members_)
      for (const Tensor& tensor : member.tensors)
        for (size_t i = 0; i < tensor.taken * case_.element(); ++i)
          ASSERT_EQ(tensor.output[i], kUntouched) << "byte " << i;
  }

 private:
  [[nodiscard]] bool has_joined(size_t rank) const { return case_.joined == static_cast<Rank>(rank); }
  [[nodiscard]] schedule::Spec spec() const {
    schedule::Spec made{.what = case_.what,
                        .dtype = case_.dtype,
                        .op = case_.op,
                        .counts = {},
                        .root = case_.root,
                        .scale = case_.scale,
                        .segment_counts = {}};
    for (const std::vector<int64_t>& counts : case_.counts) {
      if (case_.what == Collective::kBroadcast) {
        made.count += counts.front();
        continue;
      }
      made.counts.resize(counts.size(), 0);
      for (size_t i = 0; i < counts.size(); ++i) made.counts[i] += counts[i];
    }
    if (case_.what == Collective::kReducescatter) made.count = static_cast<int64_t>(sum(made.counts));
    return made;
  }

  std::byte* allocate(size_t rank, Bytes& own, size_t elements) {
    const size_t bytes = elements * case_.element();
    if (case_.in_arena[rank]) return static_cast<std::byte*>(ranks_.arena(rank).allocate(bytes));
    own.resize(bytes + 1);
    return own.data();
  }

  Member make_member(size_t rank) {
    Member member;
    const auto n = static_cast<Rank>(ranks_.size());
    for (Rank i = 0; i < n; ++i) member.group.members.push_back(i);
    member.group.me = static_cast<Rank>(rank);
    for (const std::vector<int64_t>& counts : case_.counts) {
      Segment segment;
      if (case_.what == Collective::kBroadcast)
        segment.count = counts.front();
      else
        segment.counts = counts;
      if (case_.what == Collective::kReducescatter) segment.count = static_cast<int64_t>(sum(counts));
      Tensor& tensor = member.tensors.emplace_back();
      tensor.given = static_cast<size_t>(elements_given(case_.what, segment, member.group.me, n));
      tensor.taken = static_cast<size_t>(elements_taken(case_.what, segment, member.group.me, n));
      if (!is_reduction(case_.what)) segment.count = static_cast<int64_t>(tensor.given);
      tensor.input = allocate(rank, tensor.own_input, tensor.given);
      for (size_t i = 0; i < tensor.given; ++i) fill(tensor.input + i * case_.element());
      const bool is_one = case_.is_in_place && case_.what == Collective::kBroadcast;
      tensor.output = is_one ? tensor.input : allocate(rank, tensor.own_output, tensor.taken);
      if (!is_one) std::fill_n(tensor.output, tensor.taken * case_.element(), kUntouched);
      if (!has_joined(rank)) segment.input = tensor.input, segment.output = tensor.output;
      if (is_one) keep_broadcast(rank, tensor);
      member.segments.push_back(segment);
    }
    return member;
  }
  void release(size_t rank, const Tensor& tensor) {
    ranks_.arena(rank).release(tensor.input);
    if (tensor.output != tensor.input) ranks_.arena(rank).release(tensor.output);
  }
  // The root's values, before a call in place.
  void keep_broadcast(size_t rank, const Tensor& tensor) {
    if (static_cast<Rank>(rank) == case_.root)
      sent_.emplace_back(tensor.input, tensor.input + tensor.given * case_.element());
  }
  void fill(std::byte* at) {
    const float value = static_cast<float>(static_cast<int64_t>(random_() % 2000) - 1000) / 64;
    if (case_.dtype == DType::kBfloat16)
      std::memcpy(at, reinterpret_cast<const std::byte*>(&value) + 2, 2);
    else if (case_.dtype == DType::kInt32)
      *reinterpret_cast<int32_t*>(at) = static_cast<int32_t>(value * 64);
    else if (case_.dtype == DType::kUint8)
      *at = static_cast<std::byte>(random_());
    else
      std::memcpy(at, &value, sizeof(value));
  }

  Bytes expected_of(size_t rank, size_t t) {
    const std::vector<int64_t>& counts = case_.counts[t];
    const size_t n = members_.size(), element = case_.element();
    Bytes result;
    const auto add = [&](size_t from, size_t begin, size_t count) {
      const std::byte* const at = members_[from].tensors[t].input + begin * element;
      result.insert(result.end(), at, at + count * element);
    };
    if (case_.what == Collective::kBroadcast) {
      if (!sent_.empty()) return sent_[t];
      add(static_cast<size_t>(case_.root), 0, static_cast<size_t>(counts.front()));
    }
    for (size_t from = 0; from < n && case_.what == Collective::kAllgather; ++from)
      add(from, 0, static_cast<size_t>(counts[from]));
    for (size_t from = 0; from < n && case_.what == Collective::kAlltoall; ++from) {
      const auto given = std::span(counts).subspan(from * n, n);
      add(from, sum(given.first(rank)), static_cast<size_t>(given[rank]));
    }
    if (case_.what == Collective::kReducescatter)
      result = expected_sum(t, sum(std::span(counts).first(rank)), static_cast<size_t>(counts[rank]));
    return result;
  }
  // All contributions in rank order, rounded once.
  Bytes expected_sum(size_t t, size_t begin, size_t count) {
    const size_t element = case_.element();
    std::vector<Bytes> given;
    std::vector<const void*> sources;
    for (size_t from = 0; from < members_.size(); ++from) {
      Bytes& mine = given.emplace_back(count * element + 1);
      if (has_joined(from))
        kernels::fill_identity(case_.op, case_.dtype, mine.data(), count);
      else
        kernels::scale(case_.dtype, members_[from].tensors[t].input + begin * element, mine.data(), count,
                       {.factor = case_.prescale});
    }
    for (const Bytes& mine : given) sources.push_back(mine.data());
    Bytes result(count * element);
    kernels::reduce_sources(case_.op, case_.dtype, sources, result.data(), count, case_.scale);
    return result;
  }

  Ranks& ranks_;
  const Case case_;
  std::mt19937_64 random_;
  uint64_t seed_;
  std::vector<Member> members_;
  std::vector<Bytes> sent_;  // [tensor] broadcast in place: what the root gave
};

size_t counts_for(Collective what, size_t ranks) {
  return what == Collective::kBroadcast ? 1 : what == Collective::kAlltoall ? ranks * ranks : ranks;
}

Case random_case(Collective what, size_t ranks, std::mt19937_64& random) {
  Case c{.what = what, .counts = {}, .in_arena = {}};
  c.dtype = std::array{DType::kFloat32, DType::kBfloat16, DType::kInt32, DType::kUint8}[random() % 4];
  const std::vector<int64_t> sizes{0, 0, 1, 5, 24, 25, 1000, 16'385, 33'000, 150'007};
  const size_t most = random() % sizes.size() + 1, tensors = 1 + random() % 3;
  for (size_t t = 0; t < tensors; ++t) {
    std::vector<int64_t>& counts = c.counts.emplace_back();
    const bool is_even = random() % 2 == 0;
    for (size_t i = 0; i < counts_for(what, ranks); ++i)
      counts.push_back(is_even && i > 0 ? counts.front() : sizes[random() % most]);
  }
  if (what == Collective::kBroadcast) c.root = static_cast<Rank>(random() % ranks);
  c.is_in_place = random() % 2 == 0;
  const auto where = random() % 3;
  for (size_t rank = 0; rank < ranks; ++rank)
    c.in_arena.push_back(where == 0 || (where == 1 && random() % 2 == 0));
  if (what != Collective::kReducescatter) return c;
  c.op = std::array{ReduceOp::kSum, ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kProduct}[random() % 4];
  if (random() % 2 == 0 && is_floating(c.dtype)) c.scale.divisor = static_cast<int64_t>(ranks);
  if (random() % 4 == 0 && is_floating(c.dtype)) c.prescale = 0.3;
  if (random() % 5 == 0) c.joined = static_cast<Rank>(random() % ranks);
  return c;
}

class LocalExchange : public testing::TestWithParam<Collective> {};

TEST_P(LocalExchange, gives_what_the_collective_means_for_every_size_place_and_type) {
  for (const size_t n : {2u, 3u, 4u, 7u}) {
    Ranks ranks(n);
    std::mt19937_64 random(n);
    for (uint64_t seed = 1; seed <= 60; ++seed) {
      World world(ranks, random_case(GetParam(), n, random), seed);
      world.start_and_run();
      world.expect_results();
      if (HasFatalFailure()) return;
    }
  }
}

// Beyond kStreamedFromBytes, results are written past the caches.
TEST_P(LocalExchange, large_tensors_come_out_right_wherever_they_lie) {
  Ranks ranks(2);
  const int64_t count = GetParam() == Collective::kBroadcast ? 4'300'001 : 2'200'001;
  for (const bool in_arena : {false, true}) {
    Case c{.what = GetParam(), .counts = {}, .root = 1, .in_arena = {in_arena, in_arena}};
    c.counts.emplace_back(counts_for(c.what, 2), count);
    World world(ranks, c, 5);
    world.start_and_run();
    world.expect_results();
  }
}

// Inputs in arenas are read where they lie; the outputs are elsewhere.
TEST_P(LocalExchange, the_place_and_the_size_of_the_tensors_choose_the_algorithm) {
  Ranks ranks(2);
  const auto how = [&](int64_t count, bool in_arena) {
    Case c{.what = GetParam(), .counts = {}, .root = 0, .in_arena = {in_arena, in_arena}};
    c.counts.emplace_back(counts_for(c.what, 2), count);
    World world(ranks, c, 5);
    world.start_and_run();
    world.expect_results();
    EXPECT_EQ(ranks.at(0).last_how(), ranks.at(1).last_how());
    return ranks.at(0).last_how();
  };
  EXPECT_EQ(how(24, true), "inline");
  EXPECT_EQ(how(25, false), "one_shot");
  EXPECT_EQ(how(4'000, true), "registered");
  EXPECT_EQ(how(100'000, false), "staged");
  EXPECT_EQ(how(100'000, true), "registered");
}

// A rank that has announced a call which others never start writes nothing, and the next call finds its
// place.
TEST_P(LocalExchange, a_call_that_some_never_start_is_cancelled_without_a_trace) {
  std::mt19937_64 random(7);
  Ranks ranks(3);
  uint16_t generation = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    Case c = random_case(GetParam(), 3, random);
    c.is_in_place = false;
    {
      World world(ranks, c, seed);
      std::vector<Done> done;
      for (size_t rank = 0; rank < 3; ++rank) {
        backend_test::TestCall call = world.call(rank);
        call.may_be_cancelled = true;
        call.generation = generation;
        if (rank == seed % 3) continue;  // never starts
        ranks.at(rank).start(call);
        for (int i = 0; i < 5; ++i) ranks.at(rank).progress(done);
      }
      EXPECT_TRUE(done.empty());
      for (size_t rank = 0; rank < 3; ++rank) {
        if (rank == seed % 3)
          ranks.at(rank).discard(world.call(rank), {});
        else
          ranks.at(rank).cancel(1, {});
        ranks.at(rank).progress(done);
      }
      ASSERT_EQ(done.size(), 3u);
      world.expect_untouched();
    }
    ++generation;
    World world(ranks, random_case(GetParam(), 3, random), seed);
    std::vector<size_t> who{0, 1, 2};
    for (const size_t rank : who) {
      backend_test::TestCall call = world.call(rank);
      call.generation = generation;
      ranks.at(rank).start(call);
    }
    ranks.run(who, 1, random);
    world.expect_results();
    if (HasFatalFailure()) return;
  }
}

TEST_P(LocalExchange, announcing_other_sizes_is_a_fault_not_an_overrun) {
  Ranks ranks(2);
  Case one{.what = GetParam(), .counts = {}, .root = 0, .in_arena = {false, false}}, two = one;
  one.counts.emplace_back(counts_for(one.what, 2), 1000);
  two.counts.emplace_back(counts_for(two.what, 2), 2000);
  World first(ranks, one, 1), second(ranks, two, 1);
  ranks.at(0).start(first.call(0));
  ranks.at(1).start(second.call(1));
  std::vector<Done> done;
  for (int i = 0; i < 10; ++i)
    for (size_t rank = 0; rank < 2; ++rank) ranks.at(rank).progress(done);
  ASSERT_EQ(done.size(), 2u);
  for (const Done& each : done) EXPECT_EQ(each.status.code, Code::kInternal);
}

INSTANTIATE_TEST_SUITE_P(Collectives, LocalExchange,
                         testing::Values(Collective::kAllgather, Collective::kBroadcast,
                                         Collective::kReducescatter, Collective::kAlltoall),
                         [](const auto& info) { return std::string(name_of(info.param)); });

// All kinds of calls use the same buffers, one after the other, among overlapping groups.
TEST(LocalExchange, calls_of_all_kinds_keep_their_buffers_apart) {
  std::mt19937_64 random(3);
  Ranks ranks(3);
  const std::array kinds{Collective::kAllgather, Collective::kBroadcast, Collective::kReducescatter,
                         Collective::kAlltoall, Collective::kAllreduce};
  for (int round = 0; round < 60; ++round) {
    std::deque<World> worlds;
    std::deque<std::vector<float>> sums;
    std::vector<size_t> calls(3, 0);
    std::deque<Group> groups;
    for (int k = 0; k < 6; ++k) {
      const Collective what = kinds[random() % kinds.size()];
      if (what != Collective::kAllreduce) {
        World& world = worlds.emplace_back(ranks, random_case(what, 3, random), random());
        for (size_t rank = 0; rank < 3; ++rank) ranks.at(rank).start(world.call(rank)), ++calls[rank];
        continue;
      }
      const size_t count = std::array{3, 500, 30'000, 100'000}[random() % 4];
      const Rank absent = static_cast<Rank>(random() % 4);  // 3: all take part
      Group members;
      for (Rank rank = 0; rank < 3; ++rank)
        if (rank != absent) members.members.push_back(rank);
      for (Rank me = 0; me < members.size(); ++me) {
        Group& group = groups.emplace_back(members);
        group.me = me;
        std::vector<float>& mine = sums.emplace_back(count, 1.0f);
        const schedule::Spec spec{
            .count = static_cast<int64_t>(count), .counts = {}, .scale = {}, .segment_counts = {}};
        const auto rank = static_cast<size_t>(members.members[static_cast<size_t>(me)]);
        ranks.at(rank).start(
            {.id = 2, .group = &group, .spec = spec, .input = mine.data(), .output = mine.data()});
        ++calls[rank];
      }
    }
    std::vector<std::vector<Done>> done(3);
    for (int turn = 0; turn < 400'000; ++turn) {
      const size_t rank = random() % 3;
      ranks.at(rank).progress(done[rank]);
      if (done[0].size() == calls[0] && done[1].size() == calls[1] && done[2].size() == calls[2]) break;
    }
    for (size_t rank = 0; rank < 3; ++rank) ASSERT_EQ(done[rank].size(), calls[rank]) << "round " << round;
    for (World& world : worlds) world.expect_results();
    for (const std::vector<float>& mine : sums) ASSERT_TRUE(mine.front() == mine.back() && mine[0] > 1.0f);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace rueda::backend::local_exchange_test
