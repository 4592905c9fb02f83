// When recurring allreduces become a plan, and which buckets it has.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rueda/control/bucketing.h"
#include "rueda/control/plan_learner.h"

namespace rueda::control::plan_learner_test {
namespace {

using Names = std::vector<std::string>;

TensorRequest allreduce(const std::string& name, int64_t count) {
  TensorRequest request;
  request.name = name;
  request.shape = {count};
  return request;
}

// As by a coordinator of two ranks that submit the same.
Bucket response_to(const TensorRequest& request) {
  Bucket response;
  static_cast<Terms&>(response) = request;
  response.root = request.root;
  std::vector<int64_t> rows;
  if (request.what == Collective::kAllgather) rows = {request.shape[0], request.shape[0]};
  response.entries.push_back(
      {.name = request.name, .shape = request.shape, .rows = rows, .numbered_at = request.numbered_at});
  return response;
}

TensorRequest numbered(int64_t number, int64_t count, Collective what = Collective::kAllreduce) {
  TensorRequest request = allreduce("call " + std::to_string(number), count);
  request.what = what;
  request.numbered_at = 5;
  return request;
}

using Step = std::vector<TensorRequest>;

class Learner : public testing::Test {
 protected:
  // All are submitted, then all run.
  void at_once(const Step& step) {
    for (const TensorRequest& request : step) learner_.saw_submission(request);
    for (const TensorRequest& request : step) learner_.saw_response(response_to(request));
  }
  // Each is submitted when the one before it has run.
  void one_by_one(const Step& step) {
    for (const TensorRequest& request : step) at_once({request});
  }
  // How many such steps it takes until they are a plan; 0 if they never are.
  int steps_to_learn(const Step& step) {
    for (int i = 1; i <= 200; ++i) {
      at_once(step);
      if (std::optional<std::vector<Bucket>> plan = take_plan()) {
        buckets_ = names_of(*plan);
        return i;
      }
    }
    return 0;
  }
  static std::vector<Names> names_of(const std::vector<Bucket>& plan) {
    std::vector<Names> all;
    for (const Bucket& bucket : plan) {
      Names& names = all.emplace_back();
      for (const Entry& entry : bucket.entries) names.push_back(entry.name);
    }
    return all;
  }

  std::optional<std::vector<Bucket>> take_plan() {
    const std::optional<std::vector<SeenTensor>> step = learner_.take_step();
    if (!step) return std::nullopt;
    return in_buckets(*step, {}, limits_);
  }

  PlanLearner learner_;
  BucketLimits limits_{.bucket_bytes = 4096};
  std::vector<Names> buckets_;
};

TEST_F(Learner, fuses_in_order_up_to_the_size_of_a_bucket) {
  const Step step = {allreduce("a", 512), allreduce("b", 256), allreduce("c", 256), allreduce("d", 5000),
                     allreduce("e", 1)};
  EXPECT_GT(steps_to_learn(step), 1);
  EXPECT_EQ(buckets_, (std::vector<Names>{{"a", "b", "c"}, {"d"}, {"e"}}));
}

TEST_F(Learner, fuses_up_to_the_size_that_a_backend_asks_for) {
  const auto larger_for_floats = [](int32_t, const Terms& terms) -> BackendTraits {
    return {.bucket_bytes = terms.dtype == DType::kFloat32 ? 16384 : 0};
  };
  limits_.traits_of = larger_for_floats;
  Step step = {allreduce("a", 1024), allreduce("b", 2048), allreduce("c", 1024), allreduce("d", 1)};
  EXPECT_GT(steps_to_learn(step), 1);
  EXPECT_EQ(buckets_, (std::vector<Names>{{"a", "b", "c"}, {"d"}}));
  learner_ = PlanLearner();
  for (TensorRequest& request : step) request.dtype = DType::kInt32;
  EXPECT_GT(steps_to_learn(step), 1);
  EXPECT_EQ(buckets_, (std::vector<Names>{{"a"}, {"b"}, {"c"}, {"d"}}));
}

TEST_F(Learner, gathers_small_tensors_from_between_large_ones) {
  const Step step = {allreduce("bias1", 1), allreduce("weight1", 1024), allreduce("bias2", 2),
                     allreduce("weight2", 9000), allreduce("bias3", 3)};
  EXPECT_GT(steps_to_learn(step), 1);
  EXPECT_EQ(buckets_, (std::vector<Names>{{"weight1"}, {"weight2"}, {"bias1", "bias2", "bias3"}}));
}

// weight is submitted when bias has run: a bucket that waits for weight would never begin.
TEST_F(Learner, runs_nothing_before_a_small_tensor_whose_result_it_may_depend_on) {
  std::optional<std::vector<Bucket>> plan;
  for (int i = 0; i < 10 && !plan; ++i) {
    one_by_one({allreduce("bias", 1), allreduce("weight", 9000)});
    plan = take_plan();
  }
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(names_of(*plan), (std::vector<Names>{{"bias"}, {"weight"}}));
}

TEST_F(Learner, runs_nothing_before_a_barrier_that_came_first) {
  std::optional<std::vector<Bucket>> plan;
  for (int i = 0; i < 10 && !plan; ++i) {
    const TensorRequest barrier = allreduce("barrier", 0), weight = allreduce("weight", 9000);
    for (const TensorRequest& request : {barrier, weight}) learner_.saw_submission(request);
    Bucket first = response_to(barrier);
    first.what = Collective::kBarrier;
    learner_.saw_response(first);
    learner_.saw_response(response_to(weight));
    plan = take_plan();
  }
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(names_of(*plan), (std::vector<Names>{{"barrier"}, {"weight"}}));
}

TEST_F(Learner, keeps_apart_what_may_depend_on_a_result) {
  const Step step = {allreduce("a", 1), allreduce("b", 1)};
  std::optional<std::vector<Bucket>> plan;
  for (int i = 0; i < 10 && !plan; ++i) {
    one_by_one(step);
    plan = take_plan();
  }
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(names_of(*plan), (std::vector<Names>{{"a"}, {"b"}}));
}

TEST_F(Learner, starts_afresh_when_a_step_has_other_tensors_or_sizes) {
  for (int i = 1; i < 50; ++i) {
    at_once({allreduce("a", 1), allreduce("b", i)});
    EXPECT_FALSE(take_plan().has_value()) << i;
  }
}

// A barrier in the middle of a step and one at its end have one name.
TEST_F(Learner, plans_a_name_that_recurs_within_a_step) {
  const Step step = {allreduce("a", 1), allreduce("barrier", 1), allreduce("b", 1), allreduce("barrier", 1)};
  std::optional<std::vector<Bucket>> plan;
  for (int i = 0; i < 10 && !plan; ++i) {
    one_by_one(step);
    plan = take_plan();
  }
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(names_of(*plan), (std::vector<Names>{{"a"}, {"barrier"}, {"b"}, {"barrier"}}));
}

// Steps with and without a metric take turns: two of them are one step.
TEST_F(Learner, plans_steps_that_take_turns_as_one) {
  std::optional<std::vector<Bucket>> plan;
  for (int i = 0; i < 20 && !plan; ++i) {
    one_by_one(i % 2 == 0 ? Step{allreduce("a", 1)} : Step{allreduce("a", 1), allreduce("metric", 1)});
    plan = take_plan();
  }
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(plan->size(), 3u);
}

TEST_F(Learner, forgets_at_what_cannot_be_planned) {
  const Step step = {allreduce("a", 1)};
  for (int i = 0; i < 50; ++i) {
    at_once(step);
    Bucket adasum = response_to(allreduce("s", 1));
    adasum.op = ReduceOp::kAdasum;
    learner_.saw_response(adasum);
    EXPECT_FALSE(take_plan().has_value());
  }
}

TEST_F(Learner, plans_every_collective_and_fuses_what_may_be_fused) {
  Step step = {allreduce("gather1", 2), allreduce("gather2", 3), allreduce("broadcast1", 2),
               allreduce("broadcast2", 2), allreduce("reduce", 2)};
  step[0].what = step[1].what = Collective::kAllgather;
  step[2].what = step[3].what = Collective::kBroadcast;
  EXPECT_GT(steps_to_learn(step), 1);
  EXPECT_EQ(buckets_,
            (std::vector<Names>{{"gather1", "gather2"}, {"broadcast1"}, {"broadcast2"}, {"reduce"}}));
}

TEST_F(Learner, takes_a_broadcast_from_another_root_for_another_call) {
  std::optional<std::vector<Bucket>> plan;
  for (Rank i = 0; i < 50 && !plan; ++i) {
    TensorRequest request = allreduce("b", 1);
    request.what = Collective::kBroadcast;
    request.root = i % 3;
    at_once({request});
    plan = take_plan();
  }
  ASSERT_TRUE(plan.has_value());
  ASSERT_EQ(plan->size(), 3u);
  EXPECT_EQ((*plan)[1].root, 1);
}

// Two named tensors and two operations without a name in each step.
TEST_F(Learner, finds_what_recurs_under_a_number_that_grows) {
  std::optional<std::vector<Bucket>> plan;
  int64_t number = 7;
  for (int i = 0; i < 10 && !plan; ++i, number += 4) {
    at_once({allreduce("a", 256), numbered(number + 2, 1), allreduce("b", 256), numbered(number + 3, 9)});
    plan = take_plan();
  }
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(names_of(*plan), (std::vector<Names>{{"a", "call " + std::to_string(number - 2), "b",
                                                  "call " + std::to_string(number - 1)}}));
  EXPECT_EQ(plan->front().entries[0].stride, 0);
  EXPECT_EQ(plan->front().entries[1].stride, 4);
  EXPECT_EQ(plan->front().entries[3].stride, 4);
}

TEST_F(Learner, does_not_plan_numbers_that_grow_unevenly) {
  int64_t number = 1;
  for (int i = 0; i < 50; ++i, number += 2 + i) {
    at_once({allreduce("a", 1), numbered(number, 1)});
    EXPECT_FALSE(take_plan().has_value());
  }
}

class LearnerOfNumbers : public Learner {
 protected:
  // Calls of these sizes, one after the other, again and again. How many there are before a plan; 0: never
  // one.
  int calls_to_learn(const std::vector<int64_t>& sizes) {
    for (int i = 1; i <= 2000; ++i) {
      one_by_one({numbered(++number_, sizes[static_cast<size_t>(i - 1) % sizes.size()])});
      plan_ = take_plan();
      if (plan_) return i;
    }
    return 0;
  }

  int64_t number_ = 0;
  std::optional<std::vector<Bucket>> plan_;
};

TEST_F(LearnerOfNumbers, finds_the_period_where_no_name_recurs) {
  const std::vector<int64_t> sizes = {1, 2, 3, 2, 1, 4};
  ASSERT_EQ(calls_to_learn(sizes), 18);
  EXPECT_EQ(plan_->size(), 6u);
  for (size_t i = 0; i < 6; ++i) {
    const Entry& entry = (*plan_)[i].entries.at(0);
    EXPECT_EQ(entry.shape, (std::vector<int64_t>{sizes[i]}));
    EXPECT_EQ(entry.name, "call " + std::to_string(13 + i));
    EXPECT_EQ(entry.stride, 6);
  }
}

// Twelve equal layers look like a step of one call, until that has proved wrong often enough.
TEST_F(LearnerOfNumbers, does_not_take_equal_layers_for_steps_forever) {
  std::vector<int64_t> sizes(12, 1);
  sizes.push_back(2);
  size_t last = 0;
  for (int i = 0; i < 8 && last != sizes.size(); ++i) {
    ASSERT_GT(calls_to_learn(sizes), 0);
    last = plan_->size();
    if (last != sizes.size()) learner_.plan_ended(12);
    number_ += 13;
  }
  EXPECT_EQ(last, sizes.size());
}

// A plan of one call pays for itself in sixty layers, but it begins and ends in every step.
TEST_F(LearnerOfNumbers, finds_the_step_behind_many_equal_layers) {
  std::vector<int64_t> sizes(60, 1);
  sizes.push_back(2);
  int64_t passes = -1;  // of the plan of one call that runs; -1: none does
  std::optional<std::vector<Bucket>> plan;
  for (size_t i = 0; i < 61 * 12; ++i) {
    const int64_t size = sizes[i % sizes.size()];
    if (passes >= 0 && size == 1) {
      ++number_, ++passes;
      continue;
    }
    if (passes >= 0) learner_.plan_ended(std::exchange(passes, -1));
    one_by_one({numbered(++number_, size)});
    plan = take_plan();
    if (plan && plan->size() == sizes.size()) break;
    if (plan) passes = 0;
  }
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(plan->size(), sizes.size());
}

TEST_F(LearnerOfNumbers, begins_no_plan_among_calls_that_are_answered_out_of_order) {
  for (int step = 0; step < 3; ++step, number_ += 3)
    for (const int64_t place : {0, 2, 1}) at_once({numbered(number_ + 1 + place, 1 + place)});
  const std::optional<std::vector<Bucket>> plan = take_plan();
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(names_of(*plan), (std::vector<Names>{{"call 7"}, {"call 9"}, {"call 8"}}));
  at_once({numbered(10, 1)});
  at_once({numbered(12, 3)});
  EXPECT_FALSE(take_plan().has_value());
}

// A step of many calls at once is no series of steps of one call: the second comes before the first has run.
TEST_F(LearnerOfNumbers, does_not_divide_calls_that_are_in_flight_together) {
  std::optional<std::vector<Bucket>> plan;
  for (int i = 0; i < 10 && !plan; ++i, number_ += 20) {
    Step step;
    for (int64_t call = 1; call <= 20; ++call) step.push_back(numbered(number_ + call, 1));
    at_once(step);
    plan = take_plan();
  }
  ASSERT_TRUE(plan.has_value());
  ASSERT_EQ(plan->size(), 1u);
  EXPECT_EQ(plan->front().entries.size(), 20u);
  EXPECT_EQ(plan->front().entries[0].stride, 20);
}

// A program that begins with a named broadcast.
TEST_F(LearnerOfNumbers, overlooks_a_name_that_came_before_the_first_step) {
  at_once({allreduce("initial", 1)});
  EXPECT_GT(calls_to_learn({1, 2, 3}), 0);
}

// Three metrics without a name after 20 gradients.
TEST_F(LearnerOfNumbers, takes_equal_calls_between_names_for_no_steps) {
  std::optional<std::vector<Bucket>> plan;
  for (int i = 0; i < 10 && !plan; ++i) {
    for (int gradient = 0; gradient < 20; ++gradient) at_once({allreduce("g" + std::to_string(gradient), 1)});
    for (int metric = 0; metric < 3; ++metric) {
      EXPECT_FALSE(take_plan().has_value());
      one_by_one({numbered(++number_, 1)});
    }
    number_ += 20;
    plan = take_plan();
  }
  ASSERT_TRUE(plan.has_value());
  size_t tensors = 0;
  for (const Bucket& bucket : *plan) tensors += bucket.entries.size();
  EXPECT_EQ(tensors, 23u);
}

TEST_F(Learner, asks_for_more_proof_after_plans_that_ended_early_only) {
  const Step step = {allreduce("a", 1), allreduce("b", 1)};
  const int first = steps_to_learn(step);
  ASSERT_GT(first, 0);
  int last = first;
  for (int i = 0; i < 8; ++i) {
    learner_.plan_ended(1);
    const int now = steps_to_learn(step);
    EXPECT_GE(now, last);
    last = now;
  }
  EXPECT_GT(last, 10 * first);
  EXPECT_LT(last, 200) << "it never gives up";
  learner_.plan_ended(1000);
  EXPECT_EQ(steps_to_learn(step), first);
}

}  // namespace
}  // namespace rueda::control::plan_learner_test
