// The builder's dependencies, cuts, topologies, and the printed form of a schedule.
#include "rueda/schedule/builder.h"

#include <gtest/gtest.h>

#include "rueda/schedule/blocks.h"
#include "schedule_cases.h"

namespace rueda::schedule::builder_test {
namespace {

using Ids = std::vector<int32_t>;

TEST(schedule_builder, a_read_waits_for_the_write_and_a_write_for_the_reads) {
  const Spec spec = spec_of(Collective::kAllgather, 2, 0);
  Builder builder(spec);
  const Slice room = builder.scratch(10);
  builder.recv(1, room);
  builder.send(1, part(room, 0, 5));
  builder.send(1, part(room, 5, 5));
  builder.recv(1, part(room, 4, 2));
  builder.recv(1, part(room, 0, 1));
  const Schedule schedule = builder.take("test");
  EXPECT_EQ(schedule.steps[1].after, Ids({0}));
  EXPECT_EQ(schedule.steps[2].after, Ids({0}));
  EXPECT_EQ(schedule.steps[3].after, Ids({1, 2}));
  EXPECT_EQ(schedule.steps[4].after, Ids({1}));
}

TEST(schedule_builder, input_and_output_conflict_only_where_they_may_be_one) {
  for (Collective what : {Collective::kAllreduce, Collective::kAllgather}) {
    const Spec spec = spec_of(what, 2, 10);
    Builder builder(spec);
    builder.send(1, input(0, 10));
    builder.recv(1, output(0, 10));
    EXPECT_EQ(builder.take("test").steps[1].after, what == Collective::kAllreduce ? Ids({0}) : Ids{});
  }
}

TEST(schedule_builder, empty_slices_make_no_step_but_signals_do) {
  const Spec spec = spec_of(Collective::kBarrier, 2, 0);
  Builder builder(spec);
  EXPECT_EQ(builder.send(1, input(0, 0)), kNoStep);
  EXPECT_EQ(builder.recv(1, output(3, 0)), kNoStep);
  const StepId told = builder.signal(1);
  builder.order(told, kNoStep);
  EXPECT_EQ(builder.take("test").steps.size(), 1U);
}

TEST(schedule_builder, scratch_is_disjoint_and_sums_travel_as_accumulators) {
  const Spec spec = spec_of(Collective::kAllreduce, 2, 10);
  Builder builder(spec);
  const Slice a = builder.scratch(3);
  const Slice b = builder.scratch(20);
  EXPECT_EQ(a.begin, 0);
  EXPECT_EQ(b.begin, 16);
  EXPECT_EQ(builder.wire_of(a), WireType::kAccumulator);
  EXPECT_EQ(builder.wire_of(input(0, 1)), WireType::kElement);
  EXPECT_EQ(builder.take("test").scratch_count, 36);
}

TEST(schedule_print, one_line_a_step) {
  Spec spec = spec_of(Collective::kAllreduce, 2, 40);
  spec.dtype = DType::kFloat16;
  const Algorithm& direct = *find_algorithm(Collective::kAllreduce, "direct");
  EXPECT_EQ(to_string(direct.build(spec, Topology::single_host(2), 1)),
            "direct: 5 steps, scratch 32\n"
            "0 send in[0,32) -> 0\n"
            "1 recv_reduce scratch[0,8) = in[32,40) op <- 0\n"
            "2 finish out[32,40) = scratch[0,8) after 1\n"
            "3 send out[32,40) -> 0 after 2\n"
            "4 recv out[0,32) <- 0 after 0\n");
}

TEST(schedule_blocks, even_blocks_end_on_cache_lines_and_cover_everything) {
  for (int64_t count : {0, 1, 15, 16, 17, 100, 1000, 12345}) {
    for (int32_t n : {1, 2, 3, 7, 32}) {
      const Blocks blocks = Blocks::even(count, n, DType::kFloat32);
      EXPECT_EQ(blocks.size(), n);
      EXPECT_EQ(blocks.total(), count);
      for (int32_t i = 0; i < n; ++i) {
        EXPECT_GE(blocks.count(i), 0);
        EXPECT_TRUE(blocks.begin(i) % 16 == 0 || blocks.begin(i) == count);
        EXPECT_LE(blocks.largest() - blocks.count(i), 31);
      }
    }
  }
}

TEST(schedule_blocks, chunks_of_a_slice_cover_it_once) {
  Topology topology = Topology::single_host(2);
  topology.chunk_bytes = 40;
  const Spec spec = spec_of(Collective::kAllreduce, 2, 0);
  const Chunks chunks = Chunks::plan(spec, topology, 101, 4);
  EXPECT_EQ(chunks.chunk_elements, 10);
  EXPECT_EQ(chunks.rounds, 11);
  int64_t at = 5;
  for (int64_t round = 0; round < chunks.rounds + 2; ++round) {
    const Slice chunk = chunks.of(input(5, 57), round);
    EXPECT_TRUE(chunk.count == 0 || chunk.begin == at);
    at += chunk.count;
  }
  EXPECT_EQ(at, 62);
}

TEST(schedule_topology, knows_its_hosts_and_their_members) {
  EXPECT_TRUE(Topology::single_host(5).is_single_host());
  EXPECT_EQ(Topology::regular(3, 2).host_count(), 3);
  EXPECT_EQ(hosts_of({0, 1, 0}).members(), (std::vector<std::vector<Rank>>{{0, 2}, {1}}));
}

}  // namespace
}  // namespace rueda::schedule::builder_test
