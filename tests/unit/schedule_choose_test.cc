// The choice among algorithms, and what a caller is told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rueda/schedule/algorithm.h"
#include "schedule_cases.h"

namespace rueda::schedule::choose_test {
namespace {

using testing::HasSubstr;

std::string chosen(const Spec& spec, const Topology& topology, std::string_view forced = "") {
  const auto choice = choose(spec, topology, forced);
  return choice.is_ok() ? std::string(choice.value().algorithm->name) : choice.status().why;
}

Spec allreduce_of(int64_t count) { return spec_of(Collective::kAllreduce, 0, count); }

TEST(schedule_choose, only_order_preserving_algorithms_unless_one_is_forced) {
  for (Rank n : {2, 3, 8, 32}) {
    for (const Topology& topology : layouts(n)) {
      for (int64_t count : {1, 1000, 100'000, 10'000'000}) {
        const auto choice = choose(allreduce_of(count), topology, "");
        ASSERT_TRUE(choice.is_ok());
        EXPECT_TRUE(is_order_preserving(*choice.value().algorithm, topology));
        EXPECT_THAT(explain(allreduce_of(count), topology, "").value(), testing::Not(HasSubstr("ring")));
      }
    }
  }
  EXPECT_EQ(chosen(allreduce_of(1000), Topology::single_host(4), "ring"), "ring");
}

TEST(schedule_choose, small_allreduces_go_in_one_step_and_large_ones_by_slices) {
  EXPECT_EQ(chosen(allreduce_of(1), Topology::single_host(4)), "flat_gather");
  EXPECT_EQ(chosen(allreduce_of(10'000'000), Topology::single_host(4)), "direct");
}

TEST(schedule_choose, large_collectives_over_hosts_cross_between_them_once) {
  const Topology topology = Topology::regular(4, 4);
  EXPECT_EQ(chosen(allreduce_of(10'000'000), topology), "two_level");
  EXPECT_EQ(chosen(spec_of(Collective::kReducescatter, 16, 10'000'000), topology), "two_level");
  EXPECT_EQ(chosen(spec_of(Collective::kAllgather, 16, 10'000'000), topology), "ring");
  EXPECT_EQ(chosen(spec_of(Collective::kBroadcast, 16, 100), topology), "two_level");
  EXPECT_EQ(chosen(spec_of(Collective::kBroadcast, 16, 100'000'000), topology), "chain");
}

// Many senders to one receiver overflow its switch port, and TCP then waits for its timers.
TEST(schedule_choose, large_allreduces_between_many_hosts_let_each_hear_one_other) {
  for (int32_t hosts : {4, 8, 16, 32}) {
    Topology topology = Topology::regular(hosts, 1);
    for (double gbps : {0.125, 0.6, 12.0}) {
      topology.remote = {.latency_us = 40, .bandwidth_gbps = gbps};
      EXPECT_EQ(chosen(allreduce_of(1 << 24), topology), "halving_doubling") << hosts << " at " << gbps;
    }
  }
}

TEST(schedule_choose, small_allreduces_between_many_hosts_take_few_rounds) {
  Topology topology = Topology::regular(8, 1);
  topology.remote = {.latency_us = 40, .bandwidth_gbps = 0.125};
  EXPECT_EQ(chosen(allreduce_of(1), topology), "flat_gather");
  EXPECT_EQ(chosen(allreduce_of(1024), topology), "recursive_doubling");
}

TEST(schedule_choose, large_allreduces_between_numbers_of_hosts_that_are_no_power_of_two_halve_as_well) {
  EXPECT_EQ(chosen(allreduce_of(1 << 24), Topology::regular(3, 1)), "direct") << "two senders do no harm";
  for (int32_t hosts : {5, 6, 7, 15, 31, 127})
    EXPECT_EQ(chosen(allreduce_of(1 << 24), Topology::regular(hosts, 1)), "halving_doubling") << hosts;
}

TEST(schedule_choose, small_even_alltoalls_take_log_n_steps) {
  Spec spec = spec_of(Collective::kAlltoall, 32, 0);
  spec.counts.assign(32 * 32, 1);
  const Topology far = Topology::regular(32, 1);
  EXPECT_EQ(chosen(spec, far), "bruck");
  spec.counts.assign(32 * 32, 100'000);
  EXPECT_EQ(chosen(spec, far), "pairwise");
}

TEST(schedule_choose, adasum_has_its_own_algorithm_whatever_is_forced) {
  Spec spec = allreduce_of(1000);
  spec.op = ReduceOp::kAdasum;
  EXPECT_EQ(chosen(spec, Topology::single_host(4)), "adasum");
  const auto choice = choose(spec, Topology::single_host(4), "ring");
  ASSERT_TRUE(choice.is_ok());
  EXPECT_EQ(choice.value().algorithm->name, "adasum");
  EXPECT_THAT(explain(spec, Topology::single_host(4), "ring").value(),
              HasSubstr("'ring' does not support this call"));
}

TEST(schedule_choose, a_forced_name_that_does_not_exist_falls_back_and_says_so) {
  const auto choice = choose(allreduce_of(1), Topology::single_host(4), "tree");
  ASSERT_TRUE(choice.is_ok());
  EXPECT_EQ(choice.value().algorithm->name, "flat_gather");
  EXPECT_THAT(explain(allreduce_of(1), Topology::single_host(4), "tree").value(),
              HasSubstr("ALLREDUCE has no algorithm 'tree', so the cost model decides"));
}

TEST(schedule_choose, the_reason_lists_every_candidate_with_its_cost) {
  const auto reason = explain(allreduce_of(1000), Topology::regular(2, 2), "");
  ASSERT_TRUE(reason.is_ok());
  for (const char* name : {"direct: ", "flat_gather: ", "two_level: ", "two_level_doubling: "})
    EXPECT_THAT(reason.value(), HasSubstr(name));
  EXPECT_THAT(reason.value(), HasSubstr(" us"));
}

TEST(schedule_choose, every_collective_has_a_choice_for_every_world) {
  for (Collective what : {Collective::kAllreduce, Collective::kAllgather, Collective::kBroadcast,
                          Collective::kReducescatter, Collective::kAlltoall, Collective::kBarrier})
    for (Rank n : {1, 2, 3, 7, 8, 32})
      for (const Topology& topology : layouts(n))
        for (int64_t count : {0, 1, 1000}) EXPECT_TRUE(choose(spec_of(what, n, count), topology, "").is_ok());
}

TEST(schedule_choose, refuses_specs_whose_parts_do_not_fit) {
  const Topology topology = Topology::single_host(2);
  Spec gather = spec_of(Collective::kAllgather, 2, 10);
  gather.counts.pop_back();
  EXPECT_EQ(chosen(gather, topology), "ALLGATHER: 1 counts for 2 ranks, 2 are needed");
  Spec scatter = spec_of(Collective::kReducescatter, 2, 10);
  scatter.count += 1;
  EXPECT_THAT(chosen(scatter, topology), HasSubstr("the counts sum to"));
  Spec broadcast = spec_of(Collective::kBroadcast, 2, 10);
  broadcast.root = 2;
  EXPECT_EQ(chosen(broadcast, topology), "BROADCAST: root 2 is not in the group of 2 ranks");
  EXPECT_THAT(chosen(allreduce_of(-1), topology), HasSubstr("-1 elements"));
  Spec average = allreduce_of(1);
  average.op = ReduceOp::kAverage;
  EXPECT_THAT(chosen(average, topology), HasSubstr("Average arrives as Sum"));
  Spec join;
  join.what = Collective::kJoin;
  EXPECT_THAT(chosen(join, topology), HasSubstr("JOIN has no algorithm"));
}

uint8_t number_of(std::string_view name) {
  for (size_t i = 0; i < algorithms().size(); ++i)
    if (algorithms()[i].what == Collective::kAllreduce && algorithms()[i].name == name)
      return static_cast<uint8_t>(i + 1);
  return 0;
}

TEST(schedule_choose, what_tuning_asks_for_runs_where_it_adds_in_the_same_order) {
  const auto tuned = [](std::string_view name, const Topology& topology, std::string_view forced = "") {
    Spec spec = allreduce_of(1 << 22);
    spec.tuning.algorithm = number_of(name);
    return chosen(spec, topology, forced);
  };
  const Topology one_each = Topology::regular(4, 1), two_each = Topology::regular(4, 2);
  EXPECT_EQ(tuned("", one_each), "halving_doubling");
  EXPECT_EQ(tuned("direct", one_each), "direct");
  EXPECT_EQ(tuned("ring", one_each), "halving_doubling") << "adds in another order";
  EXPECT_EQ(tuned("halving_doubling", two_each), tuned("", two_each)) << "adds in another order here";
  EXPECT_EQ(tuned("direct", two_each), "direct");
  EXPECT_EQ(tuned("direct", one_each, "ring"), "ring") << "what is forced comes first";
  Spec spec = allreduce_of(1 << 22);
  for (int number = 0; number < 256; ++number) {
    spec.tuning.algorithm = static_cast<uint8_t>(number);
    for (const Topology& topology : {one_each, two_each, Topology::single_host(4)})
      EXPECT_TRUE(is_order_preserving(*choose(spec, topology, "").value().algorithm, topology)) << number;
  }
  spec.what = Collective::kBroadcast;
  spec.root = 0;
  spec.tuning.algorithm = number_of("direct");
  EXPECT_NE(chosen(spec, one_each), "direct") << "of an allreduce";
}

TEST(schedule_choose, tuning_says_how_large_chunks_are) {
  Spec spec = allreduce_of(1 << 22);
  EXPECT_EQ(tuned_for(spec, Topology::regular(4, 1)).chunk_bytes, Topology().chunk_bytes);
  spec.tuning.chunk_bytes = 4096;
  EXPECT_EQ(tuned_for(spec, Topology::regular(4, 1)).chunk_bytes, 4096);
}

}  // namespace
}  // namespace rueda::schedule::choose_test
