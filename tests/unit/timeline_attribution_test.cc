#include "timeline/attribution.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <random>

namespace rueda::timeline::attribution_test {
namespace {

TEST(Attribution, a_step_without_calls_is_computing_and_input) {
  const Attribution found = attribute({.step = {100, 200}, .inputs = {{90, 120}, {110, 130}}});
  EXPECT_EQ(found.of(StepShare::kInput), 30);
  EXPECT_EQ(found.of(StepShare::kCompute), 70);
  EXPECT_EQ(found.total(), 100);
}

// One negotiated call with every phase, and a thread that is blocked from its submission to its end.
TEST(Attribution, a_blocked_thread_is_blocked_by_the_phases_of_the_call) {
  const CallTimes call{.submitted = 10,
                       .ordered = 30,
                       .started = 35,
                       .transfer_began = 40,
                       .unpack_began = 80,
                       .ended = 90,
                       .last_submitted = 25,
                       .last_started = 55,
                       .submitted_last = 2,
                       .started_last = 3};
  const Attribution found = attribute({.step = {0, 100}, .calls = {call}, .blocked = {{10, 95}}});
  EXPECT_EQ(found.of(StepShare::kWaiting), 15 + 15);
  EXPECT_EQ(found.waiting_for.at(2), 15) << "before it submitted";
  EXPECT_EQ(found.waiting_for.at(3), 15) << "before it started";
  EXPECT_EQ(found.of(StepShare::kNegotiation), 5);
  EXPECT_EQ(found.of(StepShare::kQueue), 5);
  EXPECT_EQ(found.of(StepShare::kPacking), 5 + 10);
  EXPECT_EQ(found.of(StepShare::kTransfer), 25);
  EXPECT_EQ(found.of(StepShare::kWaking), 5);
  EXPECT_EQ(found.of(StepShare::kOther), 0);
  EXPECT_EQ(found.of(StepShare::kCompute), 15);
  EXPECT_EQ(found.total(), 100);
  EXPECT_EQ(found.under_way, 55);
  EXPECT_EQ(found.hidden, 0);
}

TEST(Attribution, what_no_record_explains_is_called_other) {
  const Attribution found = attribute({.step = {0, 100}, .blocked = {{20, 60}}});
  EXPECT_EQ(found.of(StepShare::kOther), 40) << "no call ended while it was blocked";
  EXPECT_EQ(found.of(StepShare::kWaking), 0);
}

TEST(Attribution, a_result_that_is_handed_over_late_is_waking) {
  const CallTimes call{.submitted = 10, .ordered = 10, .started = 10, .transfer_began = 10, .ended = 30};
  const auto found = [&](std::vector<Interval> blocked) {
    return attribute({.step = {0, 100}, .calls = {call}, .blocked = std::move(blocked)});
  };
  EXPECT_EQ(found({{32, 37}}).of(StepShare::kWaking), 5) << "it ended just before";
  EXPECT_EQ(found({{20, 35}, {36, 40}}).of(StepShare::kWaking), 5 + 4) << "the call had two tensors";
  EXPECT_EQ(found({{20, 35}, {36, 40}, {50, 60}}).of(StepShare::kOther), 10) << "that was long ago";
}

TEST(Attribution, a_transfer_that_nobody_waits_for_is_hidden) {
  const CallTimes call{.submitted = 10, .ordered = 10, .started = 10, .transfer_began = 10, .ended = 60};
  const Attribution found = attribute({.step = {0, 100}, .calls = {call}, .blocked = {{50, 60}}});
  EXPECT_EQ(found.of(StepShare::kTransfer), 10);
  EXPECT_EQ(found.of(StepShare::kCompute), 90);
  EXPECT_EQ(found.hidden, 40);
  EXPECT_EQ(found.under_way, 50);
}

TEST(Attribution, while_one_call_transfers_waiting_for_another_costs_nothing) {
  const CallTimes moves{.submitted = 0, .ordered = 0, .started = 0, .transfer_began = 0, .ended = 50};
  const CallTimes waits{.submitted = 0,
                        .ordered = 0,
                        .started = 0,
                        .transfer_began = 0,
                        .ended = 100,
                        .last_started = 80,
                        .started_last = 1};
  const Attribution found = attribute({.step = {0, 100}, .calls = {moves, waits}, .blocked = {{0, 100}}});
  EXPECT_EQ(found.of(StepShare::kTransfer), 50 + 20);
  EXPECT_EQ(found.of(StepShare::kWaiting), 30);
}

TEST(Attribution, every_moment_of_random_steps_is_counted_once) {
  const uint64_t seed = std::random_device{}();
  std::printf("seed %lu\n", seed);
  std::mt19937_64 random(seed);
  const auto any = [&](Nanos from, Nanos to) {
    return from + static_cast<Nanos>(random() % (to - from + 1));
  };
  for (int round = 0; round < 2'000; ++round) {
    RankStepTimes times{.step = {1'000, 1'000 + any(1, 1'000)}};
    for (Nanos i = any(0, 6); i > 0; --i) {
      CallTimes call;
      call.submitted = any(900, 2'000);
      call.ordered = any(call.submitted, 2'100);
      call.started = any(call.ordered, 2'200);
      call.transfer_began = any(call.started, 2'300);
      call.ended = any(call.transfer_began, 2'400);
      call.unpack_began = any(0, 1) == 0 ? 0 : any(call.transfer_began, call.ended);
      call.submitted_last = static_cast<Rank>(any(0, 3)) - 1;
      call.started_last = static_cast<Rank>(any(0, 3)) - 1;
      call.last_submitted = any(800, 2'500);
      call.last_started = any(800, 2'500);
      times.calls.push_back(call);
    }
    for (Nanos i = any(0, 4); i > 0; --i) times.blocked.push_back({any(900, 1'500), any(900, 2'100)});
    for (Nanos i = any(0, 2); i > 0; --i) times.inputs.push_back({any(900, 1'500), any(900, 2'100)});
    const Attribution found = attribute(times);
    ASSERT_EQ(found.total(), times.step.end - times.step.begin) << round;
    Nanos waiting = 0;
    for (const auto& [rank, time] : found.waiting_for) waiting += time;
    ASSERT_EQ(waiting, found.of(StepShare::kWaiting));
    ASSERT_LE(found.hidden, found.under_way);
    for (const Nanos share : found.shares) ASSERT_GE(share, 0);
  }
}

}  // namespace
}  // namespace rueda::timeline::attribution_test
