// Tensors that share memory with others of their rank: no transfer contains two of them, and no plan any.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "control_fixture.h"
#include "rueda/control/plans.h"

namespace rueda::control::shared_memory_test {
namespace {

using testing::ElementsAre;
using L = std::vector<std::string>;

TensorRequest shared(TensorRequest request) {
  request.shares_memory = true;
  return request;
}

Bucket bucket_of(const char* name) {
  Bucket bucket;
  bucket.entries.push_back({.name = name, .shape = {4}, .rows = {}});
  return bucket;
}

std::vector<L> buckets_of(const std::vector<Tensors>& by_rank) {
  Coordinator coordinator(world_of(static_cast<Rank>(by_rank.size())));
  Rank rank = 0;
  for (const Tensors& requests : by_rank)
    coordinator.submit(rank++, {requests.begin(), requests.end()}, 0, nullptr);
  std::vector<L> out;
  for (const Response& response : coordinator.take_ready()) out.push_back(names(response));
  return out;
}

TEST(SharedMemory, travels_alone_and_keeps_its_place) {
  EXPECT_THAT(buckets_of({{allreduce("a"), shared(allreduce("b")), shared(allreduce("c")), allreduce("d")}}),
              ElementsAre(L{"a", "d"}, L{"b"}, L{"c"}));
}

TEST(SharedMemory, of_one_rank_is_enough) {
  const Tensors apart = {allreduce("a"), allreduce("b"), allreduce("c")};
  EXPECT_THAT(buckets_of({apart, {apart[0], shared(apart[1]), apart[2]}, apart}),
              ElementsAre(L{"a", "c"}, L{"b"}));
}

TEST(SharedMemory, in_a_group_the_other_members_are_fused) {
  EXPECT_THAT(buckets_of({group("g", {allreduce(""), shared(allreduce("")), allreduce("")})}),
              ElementsAre(L{"g_1of3", "g_3of3"}, L{"g_2of3"}));
}

TEST(SharedMemory, with_a_priority_is_fused_with_nothing_either) {
  Tensors urgent = {allreduce("a"), allreduce("b"), allreduce("c")};
  for (TensorRequest& request : urgent) request.priority = 1;
  Coordinator coordinator(world_of(1));
  coordinator.submit(0, {urgent[0], shared(urgent[1]), urgent[2]}, 0, nullptr);
  std::vector<L> order;
  for (int i = 0; i < 3; ++i)
    for (const Response& response : coordinator.take_ready()) order.push_back(names(response));
  EXPECT_THAT(order, ElementsAre(L{"a", "c"}, L{"b"}));
}

TEST(SharedMemory, is_in_no_plan) {
  PlanLearner learner;
  for (int i = 0; i < 100; ++i) {
    for (const TensorRequest& request : {allreduce("a"), shared(allreduce("b"))})
      learner.saw_submission(request);
    for (const char* name : {"a", "b"}) learner.saw_response(bucket_of(name));
    ASSERT_FALSE(learner.take_step().has_value());
  }
  PlanRunner runner;
  ASSERT_TRUE(runner.begin(1, 0, {bucket_of("a")}).is_ok());
  EXPECT_TRUE(runner.position_of(allreduce("a")).has_value());
  EXPECT_FALSE(runner.position_of(shared(allreduce("a"))).has_value()) << "the rank departs from the plan";
}

}  // namespace
}  // namespace rueda::control::shared_memory_test
