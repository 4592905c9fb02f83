// The verifier finds every kind of fault: a right schedule is broken in one place, and the verifier
// must say so.
#include "rueda/schedule/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "rueda/schedule/first_write.h"
#include "schedule_cases.h"

namespace rueda::schedule::verify_test {
namespace {

using testing::HasSubstr;

struct Broken {
  Spec spec;
  Topology topology;
  std::vector<Schedule> schedules;
  bool is_order_preserving = true;

  Broken(std::string_view name, const Topology& where, int64_t count) : topology(where) {
    spec.count = count;
    const Algorithm& algorithm = *find_algorithm(Collective::kAllreduce, name);
    is_order_preserving = schedule::is_order_preserving(algorithm, topology);
    for (Rank rank = 0; rank < topology.size(); ++rank)
      schedules.push_back(algorithm.build(spec, topology, rank));
  }
  [[nodiscard]] std::string fault() const {
    const auto report = verify_schedules(spec, topology, schedules, is_order_preserving);
    return report.is_ok() ? "" : report.status().why;
  }
  Step& first(Rank rank, StepKind kind) {
    for (Step& step : schedules[rank].steps)
      if (step.kind == kind) return step;
    ADD_FAILURE() << "no such step";
    return schedules[rank].steps.front();
  }
};

Broken direct_of_three() { return {"direct", Topology::single_host(3), 300}; }

TEST(schedule_verify, accepts_the_schedules_it_is_broken_from) { EXPECT_EQ(direct_of_three().fault(), ""); }

TEST(schedule_verify, finds_a_sum_in_another_order) {
  Broken broken("ring", Topology::single_host(4), 400);
  broken.is_order_preserving = true;
  EXPECT_THAT(broken.fault(), HasSubstr("instead of (3 op (2 op (0 op 1)))"));
}

TEST(schedule_verify, finds_an_order_that_ignores_hosts) {
  Broken broken("direct", Topology::single_host(4), 400);
  broken.topology = Topology::regular(2, 2);
  EXPECT_THAT(broken.fault(), HasSubstr("instead of ((0 op 1) op (2 op 3))"));
}

TEST(schedule_verify, finds_what_two_ranks_overwrite_too_early) {
  Broken broken("direct", Topology::single_host(2), 200);
  EXPECT_EQ(broken.fault(), "");
  const Slice early{Buffer::kOutput, 0, 1};
  broken.schedules[1].steps.insert(broken.schedules[1].steps.begin(),
                                   Step{.kind = StepKind::kFinish, .to = early, .from = early});
  for (size_t i = 1; i < broken.schedules[1].steps.size(); ++i)
    for (int32_t& before : broken.schedules[1].steps[i].after) ++before;
  EXPECT_THAT(broken.fault(), HasSubstr("rank 1 of two overwrites its input"));
}

TEST(schedule_first_write, hears_first_only_if_it_waits_for_a_receive) {
  const Slice input{Buffer::kInput, 0, 4}, output{Buffer::kOutput, 0, 4}, scratch{Buffer::kScratch, 0, 4};
  const Step send{.kind = StepKind::kSend, .peer = 1, .from = input};
  const Step receive{.kind = StepKind::kRecv, .peer = 1, .to = scratch};
  Step sum{.kind = StepKind::kReduce, .to = output, .from = input, .from2 = scratch};
  const auto is_spared = [](std::vector<Step> steps) {
    return hears_before_writing({.steps = std::move(steps), .name = "test"});
  };
  EXPECT_FALSE(is_spared({send, receive, sum}));
  sum.after = {1};
  EXPECT_TRUE(is_spared({send, receive, sum}));
  const Step in_place{.kind = StepKind::kCopy, .to = output, .from = input};
  EXPECT_TRUE(is_spared({in_place, receive}));
  const Step moves{.kind = StepKind::kCopy, .to = {Buffer::kOutput, 0, 2}, .from = {Buffer::kInput, 2, 2}};
  EXPECT_FALSE(is_spared({moves, receive}));
}

TEST(schedule_verify, finds_a_contribution_that_is_counted_twice) {
  Broken broken("ring", Topology::single_host(3), 300);
  for (Step& step : broken.schedules[1].steps)
    if (step.kind == StepKind::kSend && step.from.buffer == Buffer::kOutput)
      step.from.buffer = Buffer::kInput;
  EXPECT_THAT(broken.fault(), HasSubstr("rank"));
  Broken twice("recursive_doubling", Topology::single_host(2), 64);
  Step& sum = twice.first(0, StepKind::kRecvReduce);
  const Step again{.kind = StepKind::kReduce, .to = sum.to, .from = sum.to, .from2 = sum.from, .after = {1}};
  auto& steps = twice.schedules[0].steps;
  steps.insert(steps.begin() + 2, again);
  steps[3].after.push_back(2);
  EXPECT_THAT(twice.fault(), HasSubstr("not contain every contribution exactly once"));
}

TEST(schedule_verify, finds_an_element_that_is_never_written) {
  Broken broken = direct_of_three();
  broken.spec.count = 301;
  EXPECT_THAT(broken.fault(), HasSubstr("is never written"));
}

TEST(schedule_verify, finds_a_missing_dependency) {
  Broken broken("two_level", Topology::regular(2, 2), 4096);
  int found = 0;
  for (Rank rank = 0; rank < 4; ++rank) {
    for (size_t i = 0; i < broken.schedules[rank].steps.size(); ++i) {
      Broken copy = broken;
      auto& after = copy.schedules[rank].steps[i].after;
      if (after.empty()) continue;
      after.clear();
      found += copy.fault().find("races") != std::string::npos ? 1 : 0;
    }
  }
  EXPECT_GE(found, 20);
}

TEST(schedule_verify, finds_a_race_that_only_shared_memory_has) {
  Broken broken("flat_gather", Topology::single_host(2), 64);
  Step& last = broken.schedules[0].steps.back();
  ASSERT_EQ(last.kind, StepKind::kReduce);
  last.after = {1};  // after the other's input has come, but not after mine has left
  EXPECT_THAT(broken.fault(), HasSubstr("races with step 0 when input and output are one"));
}

TEST(schedule_verify, finds_messages_that_do_not_meet) {
  Broken size = direct_of_three();
  size.first(0, StepKind::kSend).from.count -= 1;
  EXPECT_THAT(size.fault(), HasSubstr("receives a size or type that differs"));

  Broken missing = direct_of_three();
  auto& steps = missing.schedules[2].steps;
  while (steps.back().kind != StepKind::kRecv) steps.pop_back();
  steps.pop_back();
  EXPECT_THAT(missing.fault(), HasSubstr("which receives"));
}

TEST(schedule_verify, finds_a_deadlock_of_sends_that_wait_for_receives) {
  Broken broken("recursive_doubling", Topology::single_host(2), 64);
  for (Rank rank : {0, 1}) {
    Step& sum = broken.first(rank, StepKind::kRecvReduce);
    sum.after = {0};  // both receive only when their own send is done
  }
  EXPECT_THAT(broken.fault(), HasSubstr("forever"));
}

TEST(schedule_verify, finds_crossed_messages_of_one_channel) {
  Spec spec;
  spec.what = Collective::kReducescatter;
  spec.counts = {100, 100};
  spec.count = 200;
  Topology topology = Topology::single_host(2);
  topology.chunk_bytes = 200;
  const Algorithm& direct = *find_algorithm(spec.what, "direct");
  std::vector<Schedule> schedules{direct.build(spec, topology, 0), direct.build(spec, topology, 1)};
  ASSERT_TRUE(verify_schedules(spec, topology, schedules, true).is_ok());
  std::vector<Step*> sends;
  for (Step& step : schedules[0].steps)
    if (step.kind == StepKind::kSend) sends.push_back(&step);
  ASSERT_EQ(sends.size(), 2U);
  std::swap(sends[0]->from, sends[1]->from);
  const auto report = verify_schedules(spec, topology, schedules, true);
  ASSERT_FALSE(report.is_ok());
  EXPECT_THAT(report.status().why, HasSubstr("combines different elements"));
}

TEST(schedule_verify, finds_what_is_out_of_bounds_or_of_the_wrong_type) {
  const auto fault_after = [](const std::function<void(Broken&)>& change) {
    Broken broken = direct_of_three();
    change(broken);
    return broken.fault();
  };
  EXPECT_THAT(fault_after([](Broken& b) { b.schedules[1].scratch_count = 1; }), HasSubstr("out of bounds"));
  EXPECT_THAT(fault_after([](Broken& b) { b.first(0, StepKind::kSend).peer = 3; }),
              HasSubstr("no such peer"));
  EXPECT_THAT(fault_after([](Broken& b) { b.first(0, StepKind::kRecv).to.buffer = Buffer::kInput; }),
              HasSubstr("writes the input"));
  EXPECT_THAT(fault_after([](Broken& b) { b.first(0, StepKind::kSend).wire = WireType::kAccumulator; }),
              HasSubstr("names a wire type that differs"));
  EXPECT_THAT(fault_after([](Broken& b) { b.schedules[0].steps.back().after = {99}; }),
              HasSubstr("not an earlier one"));
  // A float32 sum may be made in the output. A float16 sum may not, because it would be rounded too early.
  EXPECT_THAT(fault_after([](Broken& b) { b.spec.dtype = DType::kFloat16; }),
              HasSubstr("round a partial sum"));
}

TEST(schedule_verify, finds_a_result_that_was_not_scaled_or_scaled_twice) {
  Broken broken = direct_of_three();
  broken.spec.scale.divisor = 3;
  EXPECT_THAT(broken.fault(), HasSubstr("was not finished"));
  Broken twice("flat_gather", Topology::single_host(3), 64);
  twice.spec.scale.divisor = 2;
  auto& steps = twice.schedules[1].steps;
  Step again = steps.back();
  again.from = again.to;
  again.after = {static_cast<int32_t>(steps.size()) - 1};
  steps.push_back(again);
  EXPECT_THAT(twice.fault(), HasSubstr("finishes twice"));
}

TEST(schedule_verify, finds_a_barrier_that_some_rank_may_leave_early) {
  Spec spec;
  spec.what = Collective::kBarrier;
  const Topology topology = Topology::single_host(8);
  const Algorithm& barrier = *find_algorithm(Collective::kBarrier, "dissemination");
  std::vector<Schedule> schedules;
  for (Rank rank = 0; rank < 8; ++rank) schedules.push_back(barrier.build(spec, topology, rank));
  ASSERT_TRUE(verify_schedules(spec, topology, schedules, true).is_ok());
  schedules[3].steps[4].after = {3};  // tells before the first message has come
  const auto report = verify_schedules(spec, topology, schedules, true);
  ASSERT_FALSE(report.is_ok());
  EXPECT_THAT(report.status().why, HasSubstr("before it knows of all ranks"));
}

}  // namespace
}  // namespace rueda::schedule::verify_test
