// When recurring allreduces become a plan, and which buckets it has.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rueda/control/plans.h"

namespace rueda::control::plan_learner_test {
namespace {

using Names = std::vector<std::string>;

TensorRequest allreduce(const std::string& name, int64_t count) {
  TensorRequest request;
  request.name = name;
  request.shape = {count};
  return request;
}

Bucket response_to(const TensorRequest& request) {
  Bucket response;
  response.entries.push_back({.name = request.name, .shape = request.shape, .rows = {}});
  response.dtype = request.dtype;
  return response;
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
      if (std::optional<std::vector<Bucket>> plan = learner_.take_plan()) {
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

  PlanLearner learner_{4096};
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
  learner_ = PlanLearner(4096, larger_for_floats);
  Step step = {allreduce("a", 1024), allreduce("b", 2048), allreduce("c", 1024), allreduce("d", 1)};
  EXPECT_GT(steps_to_learn(step), 1);
  EXPECT_EQ(buckets_, (std::vector<Names>{{"a", "b", "c"}, {"d"}}));
  learner_ = PlanLearner(4096, larger_for_floats);
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
    plan = learner_.take_plan();
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
    plan = learner_.take_plan();
  }
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(names_of(*plan), (std::vector<Names>{{"barrier"}, {"weight"}}));
}

TEST_F(Learner, keeps_apart_what_may_depend_on_a_result) {
  const Step step = {allreduce("a", 1), allreduce("b", 1)};
  std::optional<std::vector<Bucket>> plan;
  for (int i = 0; i < 10 && !plan; ++i) {
    one_by_one(step);
    plan = learner_.take_plan();
  }
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(names_of(*plan), (std::vector<Names>{{"a"}, {"b"}}));
}

TEST_F(Learner, starts_afresh_when_a_step_has_other_tensors_or_sizes) {
  for (const Step& other : {Step{allreduce("a", 1)}, Step{allreduce("a", 1), allreduce("b", 2)},
                            Step{allreduce("a", 1), allreduce("b", 1), allreduce("c", 1)}}) {
    for (int i = 0; i < 50; ++i) {
      at_once({allreduce("a", 1), allreduce("b", 1)});
      at_once(other);
      EXPECT_FALSE(learner_.take_plan().has_value());
    }
  }
}

TEST_F(Learner, forgets_at_what_cannot_be_planned) {
  const Step step = {allreduce("a", 1)};
  for (int i = 0; i < 50; ++i) {
    at_once(step);
    Bucket gather = response_to(allreduce("g", 1));
    gather.what = Collective::kAllgather;
    learner_.saw_response(gather);
    EXPECT_FALSE(learner_.take_plan().has_value());
  }
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
