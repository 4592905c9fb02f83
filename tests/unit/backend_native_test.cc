// The executor on schedules written by hand, and its life cycle: order, failure, abort, memory.
#include "rueda/backend/native/native.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "backend_fake_mesh.h"
#include "rueda/schedule/algorithm.h"
#include "rueda/schedule/verify.h"
#include "schedule_cases.h"

namespace rueda::backend_test::backend_native_test {
namespace {

using Call = TestCall;
using backend::Done;
using backend::NativeOptions;
using schedule::Buffer;
using schedule::Slice;
using schedule::Spec;
using schedule::Step;
using schedule::StepKind;
using schedule::Topology;
using schedule::WireType;

Slice in(int64_t begin, int64_t count) { return {Buffer::kInput, begin, count}; }
Slice out(int64_t begin, int64_t count) { return {Buffer::kOutput, begin, count}; }

NativeOptions scripted(std::function<std::vector<Step>(Rank me)> steps, int64_t scratch = 0) {
  NativeOptions options;
  options.maker = [steps = std::move(steps), scratch](const Spec&, const Topology&,
                                                      Rank me) -> Result<schedule::Schedule> {
    return schedule::Schedule{.steps = steps(me), .scratch_count = scratch, .name = "scripted"};
  };
  return options;
}

Spec spec_of(Collective what, int64_t count, DType dtype) {
  Spec spec;
  spec.what = what;
  spec.dtype = dtype;
  spec.count = count;
  return spec;
}
Spec allreduce(int64_t count, DType dtype = DType::kFloat32) {
  return spec_of(Collective::kAllreduce, count, dtype);
}

// One float vector a rank, and the call over it.
struct Ranks {
  std::vector<Group> groups;
  std::vector<std::vector<float>> inputs, outputs;
  Ranks(const FakeMesh& mesh, int64_t count) {
    for (Rank me = 0; me < mesh.size(); ++me) {
      groups.push_back(mesh.world(me));
      inputs.emplace_back(count);
      std::iota(inputs.back().begin(), inputs.back().end(), static_cast<float>(100 * me));
      outputs.emplace_back(count, -1.0f);
    }
  }
  Call call(Rank me, backend::CallId id, const Spec& spec) {
    return {.id = id,
            .group = &groups[me],
            .spec = spec,
            .input = inputs[me].data(),
            .output = outputs[me].data()};
  }
};

class Scripted : public testing::TestWithParam<WireKind> {};
INSTANTIATE_TEST_SUITE_P(Backend, Scripted, testing::Values(WireKind::kRendezvous, WireKind::kBuffered),
                         [](const auto& info) {
                           return info.param == WireKind::kRendezvous ? "rendezvous" : "buffered";
                         });

// Rank 0's first send waits for a message. Its second one is ready at once and must not overtake it. The wire
// checks that sizes agree.
TEST_P(Scripted, messages_to_one_peer_leave_in_list_order_whatever_is_ready_first) {
  const auto steps = [](Rank me) -> std::vector<Step> {
    if (me == 0)
      return {{.kind = StepKind::kRecv, .peer = 1, .to = out(0, 1)},
              {.kind = StepKind::kSend, .peer = 1, .from = out(0, 1), .after = {0}},
              {.kind = StepKind::kSend, .peer = 1, .from = in(1, 3)}};
    return {{.kind = StepKind::kSend, .peer = 0, .from = in(0, 1)},
            {.kind = StepKind::kRecv, .peer = 0, .to = out(0, 1)},
            {.kind = StepKind::kRecv, .peer = 0, .to = out(1, 3)}};
  };
  for (uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    FakeMesh mesh(Topology::single_host(2), GetParam(), seed, scripted(steps));
    Ranks ranks(mesh, 4);
    for (Rank me = 0; me < 2; ++me) mesh.backend(me).start(ranks.call(me, 7, allreduce(4)));
    ASSERT_TRUE(mesh.run());
    EXPECT_EQ(ranks.outputs[1], (std::vector<float>{100, 1, 2, 3}));
    ASSERT_EQ(mesh.done(1).size(), 1u);
    EXPECT_EQ(mesh.done(1)[0].id, 7u);
    EXPECT_TRUE(mesh.done(1)[0].status.is_ok());
  }
}

class MessageLog final : public backend::ActivitySink {
 public:
  explicit MessageLog(bool is_wanted) : is_wanted_(is_wanted) {}
  void begin(backend::Activity) override {}
  [[nodiscard]] bool wants_messages() const override { return is_wanted_; }
  void add(const backend::Message& message) override { all.push_back(message); }
  std::vector<backend::Message> all;

 private:
  bool is_wanted_;
};

TEST_P(Scripted, both_ends_tell_the_same_of_a_message_and_nothing_where_nobody_asks) {
  const auto steps = [](Rank me) -> std::vector<Step> {
    if (me == 0)
      return {{.kind = StepKind::kSend, .peer = 1, .from = in(0, 1)},
              {.kind = StepKind::kSend, .peer = 1, .from = in(1, 3)},
              {.kind = StepKind::kRecv, .peer = 1, .to = out(0, 2)}};
    return {{.kind = StepKind::kRecv, .peer = 0, .to = out(0, 1)},
            {.kind = StepKind::kRecv, .peer = 0, .to = out(1, 3)},
            {.kind = StepKind::kSend, .peer = 0, .from = in(0, 2)}};
  };
  for (const bool is_wanted : {true, false}) {
    FakeMesh mesh(Topology::single_host(2), GetParam(), 1, scripted(steps));
    Ranks ranks(mesh, 4);
    std::vector<MessageLog> logs(2, MessageLog(is_wanted));
    for (uint64_t call = 0; call < 2; ++call) {  // the numbers begin anew
      for (auto& log : logs) log.all.clear();
      for (Rank me = 0; me < 2; ++me) {
        Call one = ranks.call(me, call + 7, allreduce(4));
        one.activities = &logs[static_cast<size_t>(me)];
        mesh.backend(me).start(one);
      }
      ASSERT_TRUE(mesh.run());
      ASSERT_EQ(logs[0].all.size(), is_wanted ? 3u : 0u);
      ASSERT_EQ(logs[1].all.size(), is_wanted ? 3u : 0u);
      for (const backend::Message& sent : logs[0].all) {
        EXPECT_EQ(sent.peer, 1);
        EXPECT_GT(sent.begin, 0);
        EXPECT_LE(sent.begin, sent.end);
        const auto other = std::ranges::find_if(logs[1].all, [&](const backend::Message& each) {
          return each.is_sent != sent.is_sent && each.number == sent.number;
        });
        ASSERT_NE(other, logs[1].all.end());
        EXPECT_EQ(other->bytes, sent.bytes);
      }
    }
  }
}

TEST_P(Scripted, messages_without_bytes_order_steps) {
  const auto steps = [](Rank me) -> std::vector<Step> {
    if (me == 0)
      return {{.kind = StepKind::kCopy, .to = out(0, 2), .from = in(0, 2)},
              {.kind = StepKind::kSend, .peer = 1, .from = in(0, 0), .after = {0}}};
    return {{.kind = StepKind::kRecv, .peer = 0, .to = out(0, 0)},
            {.kind = StepKind::kCopy, .to = out(0, 2), .from = in(0, 2), .after = {0}}};
  };
  FakeMesh mesh(Topology::single_host(2), GetParam(), 1, scripted(steps));
  Ranks ranks(mesh, 2);
  mesh.backend(1).start(ranks.call(1, 1, allreduce(2)));
  while (mesh.sweep_all()) {
  }
  EXPECT_EQ(ranks.outputs[1][0], -1.0f) << "rank 1 must wait for the signal";
  mesh.backend(0).start(ranks.call(0, 1, allreduce(2)));
  ASSERT_TRUE(mesh.run());
  EXPECT_EQ(ranks.outputs[1], ranks.inputs[1]);
}

// to = from op peer, then scaled and rounded: the operands in this order, pieces of any size.
TEST_P(Scripted, arriving_pieces_are_reduced_where_they_belong) {
  const Slice acc{Buffer::kScratch, 16, 1000};
  const auto steps = [acc](Rank me) -> std::vector<Step> {
    if (me == 0)
      return {{.kind = StepKind::kRecvReduce,
               .peer = 1,
               .to = acc,
               .from = in(0, 1000),
               .wire = WireType::kElement},
              {.kind = StepKind::kFinish, .to = out(0, 1000), .from = acc, .after = {0}}};
    return {{.kind = StepKind::kSend, .peer = 0, .from = in(0, 1000)}};
  };
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    FakeMesh mesh(Topology::single_host(2), GetParam(), seed, scripted(steps, 1016));
    Ranks ranks(mesh, 1000);
    Spec spec = allreduce(1000);
    spec.scale = {0.5, 1};
    for (Rank me = 0; me < 2; ++me) mesh.backend(me).start(ranks.call(me, 1, spec));
    ASSERT_TRUE(mesh.run());
    for (int i = 0; i < 1000; ++i) ASSERT_EQ(ranks.outputs[0][i], static_cast<float>(i + 50));
  }
}

// ---- life ----

TEST(NativeBackend, a_group_of_one_needs_no_channels) {
  NativeQueue alone(std::make_unique<backend::NativeBackend>(backend::Mesh{
      .endpoint = [](Rank, size_t) -> transport::Endpoint* { return nullptr; }, .topology = {}}));
  const Group group{.id = 0, .epoch = 1, .members = {5}, .me = 0};
  std::vector<int64_t> input{9, -9}, output(2);
  Spec spec = allreduce(2, DType::kInt64);
  spec.scale = {1.0, 2};
  std::vector<Done> done;
  alone.start({.id = 1, .group = &group, .spec = spec, .input = input.data(), .output = output.data()});
  Spec gather = spec_of(Collective::kAllgather, 0, DType::kInt64);
  gather.counts = {2};
  std::vector<int64_t> gathered(2);
  alone.start({.id = 2, .group = &group, .spec = gather, .input = input.data(), .output = gathered.data()});
  const Spec barrier = spec_of(Collective::kBarrier, 0, DType::kUint8);
  alone.start({.id = 3, .group = &group, .spec = barrier, .input = nullptr, .output = nullptr});
  while (!alone.is_idle()) ASSERT_TRUE(alone.progress(done));
  ASSERT_EQ(done.size(), 3u);
  EXPECT_EQ(output, (std::vector<int64_t>{4, -4}));
  EXPECT_EQ(gathered, input);
}

TEST(NativeBackend, a_broken_channel_fails_the_call_only_when_no_channel_holds_its_memory) {
  const auto steps = [](Rank me) {
    std::vector<Step> all;
    for (Rank peer = 0; peer < 3; ++peer) {
      if (peer == me) continue;
      all.push_back({.kind = StepKind::kSend, .peer = peer, .from = in(100 * me, 100)});
      all.push_back({.kind = StepKind::kRecv, .peer = peer, .to = out(100 * peer, 100)});
    }
    return all;
  };
  FakeMesh mesh(Topology::single_host(3), WireKind::kRendezvous, 3, scripted(steps));
  Ranks ranks(mesh, 300);
  for (Rank me = 0; me < 3; ++me) mesh.backend(me).start(ranks.call(me, 1, allreduce(300)));
  std::vector<Done>& done = mesh.done(0);
  mesh.backend(0).progress(done);
  ASSERT_GT(mesh.wire(2, 0).posted_receives(), 0u);
  mesh.wire(1, 0).fail_open({Code::kPeerLost, "rank 1 closed its connection"});
  mesh.deliver_all();
  mesh.backend(0).progress(done);
  EXPECT_TRUE(done.empty()) << "rank 2 may still write into the buffers";
  for (const auto& [from, to] : {std::pair{2, 0}, {0, 1}, {0, 2}})
    mesh.wire(from, to).fail_open({Code::kShutDown, "a later reason"});
  mesh.deliver_all();
  mesh.backend(0).progress(done);
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].status.code, Code::kPeerLost);
  EXPECT_EQ(done[0].status.why, "rank 1 closed its connection");
  mesh.backend(0).start(ranks.call(0, 2, allreduce(300)));
  mesh.backend(0).progress(done);
  ASSERT_EQ(done.size(), 2u);
  EXPECT_EQ(done[1].status.code, Code::kPeerLost) << "the channels are out of step";
}

TEST(NativeBackend, abort_fails_running_and_queued_calls_and_ignores_what_arrives_later) {
  FakeMesh mesh(Topology::single_host(2), WireKind::kRendezvous, 4);
  Ranks ranks(mesh, 100);
  std::vector<Done>& done = mesh.done(0);
  for (backend::CallId id = 1; id <= 3; ++id) mesh.backend(0).start(ranks.call(0, id, allreduce(100)));
  mesh.backend(0).progress(done);
  const Status why{Code::kPeerLost, "rank 1 was lost"};
  mesh.wire(0, 1).fail_open(why);  // as Transport::abort does, before
  mesh.wire(1, 0).fail_open(why);
  mesh.backend(0).abort(why);
  mesh.deliver_all();
  mesh.backend(0).start(ranks.call(0, 4, allreduce(100)));
  for (int i = 0; i < 3; ++i) mesh.backend(0).progress(done);
  ASSERT_EQ(done.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(done[i].id, i + 1);
    EXPECT_EQ(done[i].status.why, why.why);
  }
  EXPECT_TRUE(mesh.backend(0).is_idle());
  EXPECT_EQ(ranks.outputs[0], std::vector<float>(100, -1.0f));
}

TEST(NativeBackend, a_spec_no_algorithm_serves_fails_its_call_alone) {
  NativeOptions options;
  options.maker = [make = backend::make_with_registry("")](const Spec& spec, const Topology& topology,
                                                           Rank me) -> Result<schedule::Schedule> {
    if (spec.count == 13) return Status{Code::kUnsupported, "not thirteen"};
    return make(spec, topology, me);
  };
  FakeMesh mesh(Topology::single_host(2), WireKind::kBuffered, 5, options);
  Ranks ranks(mesh, 13);
  for (Rank me = 0; me < 2; ++me) {
    mesh.backend(me).start(ranks.call(me, 1, allreduce(13)));
    mesh.backend(me).start(ranks.call(me, 2, allreduce(12)));
  }
  ASSERT_TRUE(mesh.run());
  for (Rank me = 0; me < 2; ++me) {
    ASSERT_EQ(mesh.done(me).size(), 2u);
    EXPECT_EQ(mesh.done(me)[0].status.code, Code::kUnsupported);
    EXPECT_TRUE(mesh.done(me)[1].status.is_ok());
  }
}

TEST(NativeBackend, overlapping_groups_run_in_the_global_order) {
  const std::vector<std::vector<Rank>> sets{{0, 1}, {1, 2, 3}, {0, 1, 2, 3}, {0, 3}, {1, 2}, {2}};
  for (uint64_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    FakeMesh mesh(Topology::regular(2, 2), seed % 2 ? WireKind::kBuffered : WireKind::kRendezvous, seed);
    std::vector<std::vector<std::vector<float>>> data(4);  // [rank][call], in place
    std::deque<Group> groups;
    for (Rank me = 0; me < 4; ++me)
      for (size_t set = 0; set < sets.size(); ++set) {
        data[me].emplace_back(50, static_cast<float>(1 << me));
        groups.push_back(mesh.group(me, sets[set], static_cast<int32_t>(set)));
        if (!groups.back().is_member()) continue;
        float* buffer = data[me].back().data();
        mesh.backend(me).start(
            {.id = set, .group = &groups.back(), .spec = allreduce(50), .input = buffer, .output = buffer});
      }
    ASSERT_TRUE(mesh.run());
    for (size_t set = 0; set < sets.size(); ++set)
      for (const Rank me : sets[set]) {
        float want = 0;
        for (const Rank member : sets[set]) want += static_cast<float>(1 << member);
        EXPECT_EQ(data[me][set], std::vector<float>(50, want));
      }
    EXPECT_TRUE(mesh.are_wires_empty());
  }
}

// An owner may tell kinds of calls apart by a high bit of their ids, and number each kind by itself.
TEST(NativeBackend, calls_that_run_at_once_may_have_ids_that_differ_in_high_bits_only) {
  constexpr backend::CallId kOtherKind = backend::CallId{1} << 63;
  const std::vector<int64_t> counts{300, 7};
  NativeOptions options;
  options.channels = 2;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    FakeMesh mesh(Topology::regular(2, 1), seed % 2 ? WireKind::kBuffered : WireKind::kRendezvous, seed,
                  options);
    const std::vector<Group> groups{mesh.world(0), mesh.world(1)};
    std::vector<std::vector<std::vector<float>>> data(2);  // [rank][call], in place
    for (Rank me = 0; me < 2; ++me) {
      for (const int64_t count : counts) data[me].emplace_back(count, static_cast<float>(me + 1));
      for (size_t i = 0; i < counts.size(); ++i) {
        float* buffer = data[me][i].data();
        mesh.backend(me).start({.id = i == 0 ? 1 : kOtherKind | 1,
                                .group = &groups[me],
                                .spec = allreduce(counts[i]),
                                .input = buffer,
                                .output = buffer});
      }
    }
    ASSERT_TRUE(mesh.run());
    for (Rank me = 0; me < 2; ++me)
      for (size_t i = 0; i < counts.size(); ++i) EXPECT_EQ(data[me][i], std::vector<float>(counts[i], 3.0F));
  }
}

TEST(NativeBackend, a_repeated_spec_is_scheduled_once_and_the_cache_is_bounded) {
  int made = 0;
  NativeOptions options;
  options.maker = [&](const Spec& spec, const Topology& topology, Rank me) {
    ++made;
    return backend::make_with_registry("")(spec, topology, me);
  };
  FakeMesh mesh(Topology::single_host(2), WireKind::kBuffered, 6, options);
  Ranks ranks(mesh, 2000);
  backend::CallId id = 0;
  const auto run = [&](int64_t count) {
    ++id;
    for (Rank me = 0; me < 2; ++me) mesh.backend(me).start(ranks.call(me, id, allreduce(count)));
    ASSERT_TRUE(mesh.run());
  };
  for (int i = 0; i < 5; ++i) run(10);
  EXPECT_EQ(made, 2);  // once a rank
  for (int64_t count = 1; count <= 600; ++count) run(count + 100);
  EXPECT_EQ(mesh.backend(0).backend().schedules().size(), backend::ScheduleCache::kMaxSchedules);
  made = 0;
  run(700);
  EXPECT_EQ(made, 0) << "recent schedules are kept";
  run(10);
  EXPECT_EQ(made, 2) << "the oldest went";
  EXPECT_EQ(mesh.backend(0).last_how(), "flat_gather");
}

// With equal bits, although the schedules are others.
TEST(NativeBackend, a_call_runs_by_the_algorithm_and_in_the_chunks_that_it_asks_for) {
  size_t steps = 0;  // of rank 0
  NativeOptions options;
  options.maker = [&](const Spec& spec, const Topology& topology, Rank me) {
    Result<schedule::Schedule> made = backend::make_with_registry("")(spec, topology, me);
    if (me == 0) steps = made.value().steps.size();
    return made;
  };
  FakeMesh mesh(Topology::regular(4, 1), WireKind::kBuffered, 6, options);
  Ranks ranks(mesh, 100'000);
  for (Rank me = 0; me < 4; ++me)
    for (float& value : ranks.inputs[static_cast<size_t>(me)])
      value = std::ldexp(1.0F + value / 7, 9 * me);  // another order of additions would round otherwise
  backend::CallId id = 0;
  const auto run = [&](std::string_view algorithm, int64_t chunk_bytes) {
    Spec spec = allreduce(100'000);
    const auto all = schedule::algorithms();
    for (size_t i = 0; i < all.size(); ++i)
      if (all[i].what == Collective::kAllreduce && all[i].name == algorithm)
        spec.tuning.algorithm = static_cast<uint8_t>(i + 1);
    spec.tuning.chunk_bytes = chunk_bytes;
    ++id;
    for (Rank me = 0; me < 4; ++me) mesh.backend(me).start(ranks.call(me, id, spec));
    EXPECT_TRUE(mesh.run());
    return ranks.outputs;
  };
  const auto as_chosen = run("", 0);
  EXPECT_EQ(mesh.backend(0).last_how(), "halving_doubling");
  for (const std::string_view name : {"direct", "two_level", "recursive_doubling", "flat_gather"}) {
    EXPECT_EQ(run(name, 0), as_chosen) << name;
    EXPECT_EQ(mesh.backend(0).last_how(), name);
  }
  EXPECT_EQ(run("ring", 0), as_chosen);
  EXPECT_EQ(mesh.backend(0).last_how(), "halving_doubling") << "a ring adds in another order";
  EXPECT_EQ(run("direct", 64 << 10), as_chosen);
  const size_t in_large_chunks = steps;
  EXPECT_EQ(run("direct", 4 << 10), as_chosen);
  EXPECT_GT(steps, 4 * in_large_chunks);
}

TEST(NativeBackend, bitwise_schedules_sum_in_rank_order_wherever_the_ranks_are) {
  const backend::ScheduleMaker by_hosts = backend::make_with_registry("");
  const backend::ScheduleMaker bitwise = backend::make_with_registry("", true);
  const Topology one_host = Topology::single_host(6);
  for (const Topology& layout : schedule::layouts(6)) {
    for (const Collective what : {Collective::kAllreduce, Collective::kReducescatter}) {
      for (const int64_t count : {1, 100, 1'000'000}) {
        const Spec spec = schedule::spec_of(what, 6, count);
        std::vector<schedule::Schedule> schedules;
        for (Rank me = 0; me < 6; ++me) schedules.push_back(bitwise(spec, layout, me).value());
        const auto proof = schedule::verify_schedules(spec, one_host, schedules, true);
        EXPECT_TRUE(proof.is_ok()) << schedule::describe(spec, layout) << ": " << proof.status().why;
      }
    }
  }
  const Spec spec = schedule::spec_of(Collective::kAllreduce, 6, 100);
  std::vector<schedule::Schedule> schedules;
  for (Rank me = 0; me < 6; ++me) schedules.push_back(by_hosts(spec, Topology::regular(2, 3), me).value());
  EXPECT_FALSE(schedule::verify_schedules(spec, one_host, schedules, true).is_ok())
      << "else this test shows nothing";
  const Spec gather = schedule::spec_of(Collective::kAllgather, 6, 100);
  const Topology two = Topology::regular(2, 3);
  EXPECT_EQ(bitwise(gather, two, 0).value().name, by_hosts(gather, two, 0).value().name)
      << "what sums nothing is chosen as ever";
}

using NativeBackendDeathTest = testing::Test;
TEST(NativeBackendDeathTest, a_schedule_that_leaves_its_buffers_is_stopped_before_it_runs) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto steps = [](Rank) -> std::vector<Step> {
    return {{.kind = StepKind::kCopy, .to = out(8, 3), .from = in(8, 3)}};
  };
  EXPECT_DEATH(
      {
        FakeMesh mesh(Topology::single_host(2), WireKind::kBuffered, 1, scripted(steps));
        Ranks ranks(mesh, 10);
        mesh.backend(0).start(ranks.call(0, 1, allreduce(10)));
        mesh.sweep_all();
      },
      "outside its buffer");
}

}  // namespace
}  // namespace rueda::backend_test::backend_native_test
