// Calls that some members start and others never do: they are cancelled, and the channels then serve
// the next call.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "backend_fake_mesh.h"
#include "rueda/backend/packing.h"

namespace rueda::backend_test::backend_cancel_test {
namespace {

using Call = TestCall;
using schedule::Topology;

schedule::Spec allreduce(int64_t count) {
  return {.what = Collective::kAllreduce, .count = count, .counts = {}, .scale = {}, .segment_counts = {}};
}

// A call of any collective but Adasum, with uneven counts, of which some are 0.
schedule::Spec any_call(Rank n, int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  constexpr std::array kWhat = {Collective::kAllgather, Collective::kBroadcast, Collective::kReducescatter,
                                Collective::kAlltoall,  Collective::kBarrier,   Collective::kAllreduce};
  schedule::Spec spec{
      .what = kWhat[seed % kWhat.size()], .count = count, .counts = {}, .scale = {}, .segment_counts = {}};
  const auto members = static_cast<size_t>(n);
  if (spec.what == Collective::kBarrier) spec.count = 0;
  if (spec.what == Collective::kBroadcast) spec.root = static_cast<Rank>(random() % members);
  if (spec.what == Collective::kAllgather || spec.what == Collective::kReducescatter)
    spec.counts.resize(members);
  if (spec.what == Collective::kAlltoall) spec.counts.resize(members * members);
  if (spec.counts.empty()) return spec;
  const bool has_none = random() % 3 == 0;
  for (int64_t& one : spec.counts)
    one =
        has_none && random() % 3 == 0 ? 0 : 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(count));
  const int64_t sum = std::accumulate(spec.counts.begin(), spec.counts.end(), int64_t{0});
  spec.count = spec.what == Collective::kReducescatter ? sum : 0;
  return spec;
}

backend::NativeOptions copying_up_to(int64_t bytes) {
  backend::NativeOptions options;
  options.copied_bytes = bytes;
  return options;
}

struct World {
  FakeMesh mesh;
  std::vector<Group> groups;
  backend::CallId next_call = 1;

  World(Topology topology, WireKind kind, uint64_t seed, const backend::NativeOptions& options)
      : mesh(std::move(topology), kind, seed, options) {
    for (Rank me = 0; me < mesh.size(); ++me) groups.push_back(mesh.world(me));
  }
  Call call(Rank me, const schedule::Spec& spec, const std::vector<float>& input,
            std::vector<float>& output) {
    return {.id = next_call,
            .group = &groups[static_cast<size_t>(me)],
            .spec = spec,
            .input = input.data(),
            .output = output.data()};
  }
  void expect_done(size_t calls) {
    for (Rank me = 0; me < mesh.size(); ++me) {
      ASSERT_EQ(mesh.done(me).size(), calls);
      for (const backend::Done& done : mesh.done(me)) ASSERT_TRUE(done.status.is_ok()) << done.status.why;
      mesh.done(me).clear();
    }
    ASSERT_TRUE(mesh.are_wires_empty());
  }
};

// A whole allreduce. Its sums are right only if no byte of an earlier call is left on a channel and none of
// its own bytes was taken for the earlier call.
class NextCall {
 public:
  NextCall(World& world, int64_t count) : world_(world), spec_(allreduce(count)) {
    for (Rank me = 0; me < world.mesh.size(); ++me) {
      data_.emplace_back(static_cast<size_t>(count));
      std::iota(data_.back().begin(), data_.back().end(), static_cast<float>(1000 * me));
    }
  }
  void start(Rank me) {
    std::vector<float>& mine = data_[static_cast<size_t>(me)];
    Call call = world_.call(me, spec_, mine, mine);
    call.id += 1 << 20;  // the call before may still be under way
    world_.mesh.backend(me).start(call);
  }
  void start_on_all() {
    for (Rank me = 0; me < world_.mesh.size(); ++me) start(me);
  }
  void run() {
    ++world_.next_call;
    ASSERT_TRUE(world_.mesh.run());
  }
  void expect_sums() {
    const auto n = static_cast<float>(world_.mesh.size());
    for (const std::vector<float>& sums : data_)
      for (size_t i = 0; i < sums.size(); ++i)
        ASSERT_EQ(sums[i], n * static_cast<float>(i) + 1000 * n * (n - 1) / 2) << "element " << i;
  }

 private:
  World& world_;
  schedule::Spec spec_;
  std::vector<std::vector<float>> data_;
};

// What a departure from a plan does: every member says how far it is; then all cancel, or discard, the
// same calls. If there is a next call, each member goes on with it at once, while others have not heard yet.
void start_on_some_and_cancel(World& world, const schedule::Spec& spec, uint64_t seed, NextCall* next) {
  std::mt19937_64 random(seed);
  FakeMesh& mesh = world.mesh;
  const auto n = static_cast<size_t>(mesh.size());
  const size_t absent = random() % n;  // at least this one never starts
  std::vector<bool> starts(n);
  // The output of a reducescatter is then a part of the input, and that of a broadcast always is the input.
  const bool is_in_place =
      spec.what == Collective::kBroadcast ||
      (spec.what != Collective::kAllgather && spec.what != Collective::kAlltoall && random() % 2 == 0);
  for (size_t me = 0; me < n; ++me) starts[me] = me != absent && random() % 4 != 0;
  std::vector<std::vector<float>> inputs(n), outputs(n);
  for (size_t me = 0; me < n; ++me) {
    const backend::Segment whole{.count = spec.count, .counts = spec.counts};
    const auto members = static_cast<Rank>(n), rank = static_cast<Rank>(me);
    inputs[me].assign(static_cast<size_t>(backend::elements_given(spec.what, whole, rank, members)),
                      static_cast<float>(me));
    outputs[me].assign(static_cast<size_t>(backend::elements_taken(spec.what, whole, rank, members)), -1.0f);
  }
  const std::vector<std::vector<float>> before = inputs;
  const auto call_of = [&](size_t me) {
    Call call = world.call(static_cast<Rank>(me), spec, inputs[me], is_in_place ? inputs[me] : outputs[me]);
    call.may_be_cancelled = true;
    return call;
  };
  for (size_t me = 0; me < n; ++me) {
    if (!starts[me]) continue;
    mesh.backend(static_cast<Rank>(me)).start(call_of(me));
    mesh.backend(static_cast<Rank>(me)).progress(mesh.done(static_cast<Rank>(me)));
  }
  mesh.shake(static_cast<int>(random() % 40));
  std::vector<std::vector<int32_t>> sent(n);
  for (size_t me = 0; me < n; ++me) {
    if (starts[me]) sent[me] = mesh.backend(static_cast<Rank>(me)).pause(world.next_call);
    mesh.shake(
        static_cast<int>(random() % 5));  // freezing takes time, in which nobody may send more for the call
  }
  for (size_t me = 0; me < n; ++me) {
    std::vector<int32_t> arrivals(n, 0);
    for (size_t from = 0; from < n; ++from)
      if (!sent[from].empty()) arrivals[from] = sent[from][me];
    if (starts[me])
      mesh.backend(static_cast<Rank>(me)).cancel(world.next_call, arrivals);
    else
      mesh.backend(static_cast<Rank>(me)).discard(call_of(me), arrivals);
    if (next != nullptr) next->start(static_cast<Rank>(me));
    mesh.shake(static_cast<int>(random() % 20));
  }
  ++world.next_call;
  ASSERT_TRUE(mesh.run());
  world.expect_done(next == nullptr ? 1 : 2);
  for (size_t me = 0; me < n; ++me)
    ASSERT_EQ(inputs[me], before[me]) << "the input of rank " << me << " is as it was";
}

// is_late: channels come up while calls wait for them.
void expect_no_trace(bool is_late, bool is_allreduce) {
  for (uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Rank hosts = 1 + static_cast<Rank>(seed % 3),
               each = hosts == 1 ? 2 + static_cast<Rank>(seed % 4) : 2;
    backend::NativeOptions options;
    options.chunk_bytes = 256;
    options.channels = 1 + seed / 7 % 2;
    options.copied_bytes = seed % 3 == 0 ? 0 : 256 << 10;  // in place: behind a start barrier, or copied
    std::mt19937_64 random(seed);
    World world(Topology::regular(hosts, each), seed % 2 ? WireKind::kBuffered : WireKind::kRendezvous, seed,
                options);
    if (is_late) world.mesh.connect_late();
    const int64_t counts[] = {1, 3, 64, 1000};
    for (uint64_t round = 0; round < 3; ++round) {
      const int64_t count = counts[(seed / 5 + round) % 4];
      NextCall next(world, (seed + round) % 2 == 0 ? count : 100);
      const bool is_at_once = random() % 2 == 0;
      const schedule::Spec spec =
          is_allreduce ? allreduce(count) : any_call(world.mesh.size(), count, seed + round);
      SCOPED_TRACE(name_of(spec.what));
      start_on_some_and_cancel(world, spec, seed + 1000 * round, is_at_once ? &next : nullptr);
      if (testing::Test::HasFatalFailure()) return;
      if (!is_at_once) {
        next.start_on_all();
        next.run();
        world.expect_done(1);
      }
      next.expect_sums();
    }
    if (testing::Test::HasFailure()) return;
  }
}

TEST(Cancel, an_allreduce_that_not_all_start_leaves_no_trace_whatever_had_happened) {
  expect_no_trace(false, true);
}

TEST(Cancel, an_allreduce_that_waits_for_its_channels_leaves_no_trace_either) { expect_no_trace(true, true); }

TEST(Cancel, no_other_collective_leaves_a_trace_either) {
  expect_no_trace(false, false);
  if (!testing::Test::HasFailure()) expect_no_trace(true, false);
}

// Two calls at once on four ranks, as at the end of a plan. Each rank has started a number of calls. Those
// that all have started run; the others are cancelled.
class SeveralCalls {
 public:
  SeveralCalls(uint64_t seed, int64_t count, bool is_late)
      : random_(seed),
        world_(Topology::regular(2, 2), seed % 2 ? WireKind::kBuffered : WireKind::kRendezvous, seed,
               options(seed)),
        spec_(allreduce(count)),
        data_(kRanks * kCalls, std::vector<float>(static_cast<size_t>(count), 2.0f)),
        sent_(kRanks * kCalls) {
    for (size_t& started : started_) started = random_() % (kCalls + 1);
    end_ = *std::ranges::min_element(started_);
    if (is_late) world_.mesh.connect_late();
  }

  void start() {
    for (size_t me = 0; me < kRanks; ++me)
      for (size_t which = 0; which < started_[me]; ++which) at(me).start(call(me, which));
    world_.mesh.shake(static_cast<int>(random_() % 60));
  }
  void pause() {
    for (size_t me = 0; me < kRanks; ++me) {
      for (size_t which = 0; which < started_[me]; ++which)
        if (is_running(me, which)) sent_[me * kCalls + which] = at(me).pause(id(which));
      world_.mesh.shake(static_cast<int>(random_() % 5));
    }
  }
  void end() {
    for (size_t me = 0; me < kRanks; ++me) {
      for (size_t which = 0; which < kCalls; ++which) end(me, which);
      world_.mesh.shake(static_cast<int>(random_() % 20));
    }
    world_.next_call = id(kCalls);
    ASSERT_TRUE(world_.mesh.run());
    world_.expect_done(kCalls);
    for (size_t i = 0; i < data_.size(); ++i)
      ASSERT_EQ(data_[i], std::vector<float>(data_[i].size(), i % kCalls < end_ ? 8.0f : 2.0f));
  }
  void expect_clean_channels() {
    for (size_t channel = 0; channel < kCalls; ++channel) {
      NextCall next(world_, 100);
      next.start_on_all();
      next.run();
      world_.expect_done(1);
      next.expect_sums();
    }
  }

 private:
  static constexpr size_t kRanks = 4, kCalls = 2;
  static backend::NativeOptions options(uint64_t seed) {
    backend::NativeOptions options = copying_up_to(seed % 3 == 0 ? 0 : 256 << 10);
    options.chunk_bytes = 256;
    options.channels = kCalls;
    return options;
  }
  NativeQueue& at(size_t rank) { return world_.mesh.backend(static_cast<Rank>(rank)); }
  static backend::CallId id(size_t which) { return 1 + which; }
  Call call(size_t me, size_t which) {
    std::vector<float>& mine = data_[me * kCalls + which];
    world_.next_call = id(which);
    Call call = world_.call(static_cast<Rank>(me), spec_, mine, mine);
    call.may_be_cancelled = true;
    return call;
  }
  bool is_running(size_t me, size_t which) { return !at(me).backend().has_room(which); }
  void end(size_t me, size_t which) {
    std::vector<int32_t> arrivals(kRanks, 0);
    for (size_t from = 0; from < kRanks; ++from)
      if (const auto& sent = sent_[from * kCalls + which]; !sent.empty()) arrivals[from] = sent[me];
    if (which < end_) {
      if (is_running(me, which)) at(me).resume(id(which));
    } else if (which < started_[me]) {
      at(me).cancel(id(which), arrivals);
    } else {
      at(me).discard(call(me, which), arrivals);
    }
  }

  std::mt19937_64 random_;
  World world_;
  schedule::Spec spec_;
  std::vector<std::vector<float>> data_;    // [rank * calls + call]
  std::vector<std::vector<int32_t>> sent_;  // the same
  std::array<size_t, kRanks> started_{};    // calls
  size_t end_ = 0;                          // that all ranks have started
};

TEST(Cancel, several_calls_under_way_are_cancelled_each_with_its_own_messages) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SeveralCalls calls(seed, seed % 5 == 0 ? 1 : 700, seed % 4 < 2);
    calls.start();
    calls.pause();
    calls.end();
    if (!testing::Test::HasFailure()) calls.expect_clean_channels();
    if (testing::Test::HasFailure()) return;
  }
}

TEST(Cancel, a_pause_that_ends_well_changes_nothing) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    World world(Topology::single_host(3), seed % 2 ? WireKind::kBuffered : WireKind::kRendezvous, seed,
                copying_up_to(seed % 3 == 0 ? 0 : 256 << 10));
    if (seed % 4 < 2) world.mesh.connect_late();
    std::vector<std::vector<float>> data(3, std::vector<float>(500, 2.0f));
    for (Rank me = 0; me < 3; ++me) {
      std::vector<float>& mine = data[static_cast<size_t>(me)];
      Call call = world.call(me, allreduce(500), mine, mine);
      call.may_be_cancelled = true;
      world.mesh.backend(me).start(call);
    }
    const auto is_running = [&](Rank me) { return !world.mesh.backend(me).backend().is_idle(); };
    world.mesh.shake(static_cast<int>(random() % 30));
    for (Rank me = 0; me < 3; ++me) {
      if (is_running(me)) world.mesh.backend(me).pause(world.next_call);
      world.mesh.shake(static_cast<int>(random() % 5));
    }
    for (Rank me = 0; me < 3; ++me) {
      if (is_running(me)) world.mesh.backend(me).resume(world.next_call);
      world.mesh.shake(static_cast<int>(random() % 5));
    }
    ASSERT_TRUE(world.mesh.run());
    world.expect_done(1);
    for (const std::vector<float>& sums : data) ASSERT_EQ(sums, std::vector<float>(500, 6.0f));
  }
}

// Two ranks write only after they have heard from one another. Among more, a rank may write what one rank has
// sent before another has begun.
TEST(Cancel, an_input_in_place_is_untouched_while_one_has_not_started) {
  for (const Rank n : {2, 3}) {
    for (const int64_t count : {1, 1000, 100'000}) {
      SCOPED_TRACE(std::to_string(n) + " ranks, " + std::to_string(count) + " elements");
      World world(Topology::single_host(n), WireKind::kBuffered, 1, {});
      std::vector<std::vector<float>> data(static_cast<size_t>(n),
                                           std::vector<float>(static_cast<size_t>(count), 2.0f));
      const auto start = [&](Rank me) {
        std::vector<float>& mine = data[static_cast<size_t>(me)];
        Call call = world.call(me, allreduce(count), mine, mine);
        call.may_be_cancelled = true;
        world.mesh.backend(me).start(call);
      };
      for (Rank me = 0; me + 1 < n; ++me) start(me);
      for (int i = 0; i < 2000; ++i) world.mesh.sweep_all();
      for (Rank me = 0; me + 1 < n; ++me)
        ASSERT_EQ(data[static_cast<size_t>(me)], std::vector<float>(static_cast<size_t>(count), 2.0f));
      start(n - 1);
      ASSERT_TRUE(world.mesh.run());
      for (const std::vector<float>& sums : data)
        ASSERT_EQ(sums, std::vector<float>(static_cast<size_t>(count), 2.0f * static_cast<float>(n)));
    }
  }
}

// At the start barrier, nothing of the call itself has been sent yet.
TEST(Cancel, a_call_behind_a_start_barrier_writes_nothing_before_all_have_started) {
  World world(Topology::single_host(3), WireKind::kBuffered, 7, copying_up_to(0));
  std::vector<std::vector<float>> data(3, std::vector<float>(500, 2.0f));
  const auto start = [&](Rank me) {
    std::vector<float>& mine = data[static_cast<size_t>(me)];
    Call call = world.call(me, allreduce(500), mine, mine);
    call.may_be_cancelled = true;
    world.mesh.backend(me).start(call);
  };
  start(0);
  start(1);
  for (int i = 0; i < 100; ++i) world.mesh.sweep_all();
  EXPECT_EQ(data[0], std::vector<float>(500, 2.0f));
  EXPECT_EQ(data[1], std::vector<float>(500, 2.0f));
  start(2);
  ASSERT_TRUE(world.mesh.run());
  EXPECT_EQ(data[0], std::vector<float>(500, 6.0f));
}

}  // namespace
}  // namespace rueda::backend_test::backend_cancel_test
