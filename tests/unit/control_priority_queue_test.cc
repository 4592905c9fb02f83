#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "control_fixture.h"
#include "rueda/control/plans.h"

namespace rueda::control::priority_queue_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using L = std::vector<std::string>;

TensorRequest urgent(std::string name, int32_t priority, std::vector<int64_t> shape = {4}) {
  TensorRequest request = allreduce(std::move(name), std::move(shape));
  request.priority = priority;
  return request;
}

CoordinatorOptions buckets_of(int64_t bytes, Rank ranks = 1) {
  CoordinatorOptions options = world_of(ranks);
  options.priority_bytes = bytes;
  return options;
}

L next(Coordinator& coordinator) {
  L all;
  for (const Response& response : coordinator.take_ready())
    for (const std::string& name : names(response)) all.push_back(name);
  return all;
}

TEST(PriorityQueue, the_most_urgent_goes_first_whatever_came_first) {
  Coordinator coordinator(buckets_of(16));
  coordinator.submit(0, {urgent("back", -3), urgent("middle", -2), urgent("front", -1)}, 0, nullptr);
  EXPECT_EQ(next(coordinator), L{"front"});
  EXPECT_EQ(next(coordinator), L{"middle"});
  EXPECT_EQ(next(coordinator), L{"back"});
  EXPECT_THAT(next(coordinator), IsEmpty());
}

TEST(PriorityQueue, what_becomes_ready_later_overtakes_all_but_the_bucket_that_left) {
  Coordinator coordinator(buckets_of(32));
  coordinator.submit(0, {urgent("d", -4), urgent("c", -3), urgent("b", -2)}, 0, nullptr);
  EXPECT_EQ(next(coordinator), (L{"b", "c"}));
  coordinator.submit(0, {urgent("a", -1)}, 0, nullptr);
  EXPECT_EQ(next(coordinator), (L{"a", "d"}));
}

TEST(PriorityQueue, equals_keep_the_order_of_becoming_ready) {
  Coordinator coordinator(buckets_of(16));
  coordinator.submit(0, {urgent("x", -1), urgent("y", -1)}, 0, nullptr);
  EXPECT_EQ(next(coordinator), L{"x"});
  EXPECT_EQ(next(coordinator), L{"y"});
}

TEST(PriorityQueue, what_has_no_priority_goes_before_the_negative_and_after_the_positive) {
  Coordinator coordinator(buckets_of(16));
  coordinator.submit(0, {urgent("low", -1), allreduce("plain1"), urgent("high", 1), allreduce("plain2")}, 0,
                     nullptr);
  EXPECT_EQ(next(coordinator), (L{"high", "plain1", "plain2"}));
  EXPECT_EQ(next(coordinator), L{"low"});
}

TEST(PriorityQueue, other_kinds_are_looked_past_and_keep_their_turn) {
  Coordinator coordinator(buckets_of(64));
  TensorRequest whole = allreduce("i", {4}, DType::kInt32);
  whole.priority = -2;
  coordinator.submit(0, {urgent("a", -1), whole, urgent("b", -3)}, 0, nullptr);
  EXPECT_EQ(next(coordinator), (L{"a", "b"}));
  EXPECT_EQ(next(coordinator), L{"i"});
}

TEST(PriorityQueue, a_tensor_larger_than_a_bucket_goes_alone) {
  Coordinator coordinator(buckets_of(16));
  coordinator.submit(0, {urgent("big", -1, {100}), urgent("small", -2)}, 0, nullptr);
  EXPECT_EQ(next(coordinator), L{"big"});
  EXPECT_EQ(next(coordinator), L{"small"});
}

TEST(PriorityQueue, parts_of_a_group_are_overtaken) {
  Coordinator coordinator(buckets_of(16));
  Tensors parts = group("w", {urgent("", -2), urgent("", -2), urgent("", -2)});
  coordinator.submit(0, parts, 0, nullptr);
  EXPECT_EQ(next(coordinator), L{"w_1of3"});
  coordinator.submit(0, {urgent("front", -1)}, 0, nullptr);
  EXPECT_EQ(next(coordinator), L{"front"});
  EXPECT_EQ(next(coordinator), L{"w_2of3"});
  EXPECT_EQ(next(coordinator), L{"w_3of3"});
}

TEST(PriorityQueue, nothing_leaves_before_every_rank_has_it_and_the_first_rank_s_number_counts) {
  Coordinator coordinator(buckets_of(16, 2));
  coordinator.submit(1, {urgent("a", -9), urgent("b", -1)}, 0, nullptr);
  EXPECT_THAT(next(coordinator), IsEmpty());
  coordinator.submit(0, {urgent("a", -1), urgent("b", -9)}, 0, nullptr);
  EXPECT_EQ(next(coordinator), L{"a"});
  EXPECT_EQ(next(coordinator), L{"b"});
}

TEST(PriorityQueue, a_removed_set_and_a_join_find_nothing_waiting) {
  CoordinatorOptions options = buckets_of(16, 2);
  options.process_sets = {{1, {0, 1}}};
  Coordinator coordinator(options);
  for (const Rank rank : {0, 1}) {
    TensorRequest a = urgent("a", -1), b = urgent("b", -2);
    a.process_set = b.process_set = 1;
    coordinator.submit(rank, {a, b, remove_set(1)}, 0, nullptr);
  }
  std::vector<Response> responses = coordinator.take_ready();
  ASSERT_EQ(responses.size(), 3u);
  EXPECT_EQ(names(responses[0]), L{"a"});
  EXPECT_EQ(names(responses[1]), L{"b"});
  EXPECT_TRUE(is<SetRemoved>(responses[2]));
  for (const Rank rank : {0, 1})
    coordinator.submit(rank, {urgent("c", -1), urgent("d", -2), join()}, 0, nullptr);
  responses = coordinator.take_ready();
  ASSERT_EQ(responses.size(), 3u);
  EXPECT_TRUE(is<Joined>(responses[2]));
}

TEST(PriorityQueue, no_plan_begins_while_somebody_waits) {
  Coordinator coordinator(buckets_of(16));
  coordinator.submit(0, {urgent("a", -1), urgent("b", -2)}, 0, nullptr);
  EXPECT_EQ(next(coordinator), L{"a"});
  EXPECT_FALSE(coordinator.may_begin_plan(are_named({"a", "b"})));
  EXPECT_EQ(next(coordinator), L{"b"});
  EXPECT_TRUE(coordinator.may_begin_plan(are_named({"a", "b"})));
}

// Whether equal steps of two tensors become a plan.
bool learns(int32_t priority) {
  Coordinator coordinator(buckets_of(16));
  PlanLearner learner;
  for (int step = 0; step < 6; ++step) {
    const Tensors requests = {urgent("a", priority), urgent("b", priority)};
    for (const TensorRequest& request : requests) learner.saw_submission(request);
    coordinator.submit(0, requests, 0, nullptr);
    for (int round = 0; round < 2; ++round) {
      for (const Response& response : coordinator.take_ready()) learner.saw_response(response);
      if (learner.take_step()) return true;
    }
  }
  return false;
}

TEST(PriorityQueue, no_plan_is_learned_of_what_has_a_priority) {
  EXPECT_TRUE(learns(0));
  EXPECT_FALSE(learns(-1));
}

TEST(PriorityQueue, a_plan_does_not_take_what_has_a_priority) {
  Bucket bucket;
  bucket.op = ReduceOp::kSum;
  bucket.entries.push_back({.name = "a", .shape = {4}, .rows = {}});
  PlanRunner runner;
  ASSERT_TRUE(runner.begin(1, 0, {bucket}).is_ok());
  EXPECT_TRUE(runner.position_of(allreduce("a")).has_value());
  EXPECT_FALSE(runner.position_of(urgent("a", -1)).has_value());
}

}  // namespace
}  // namespace rueda::control::priority_queue_test
