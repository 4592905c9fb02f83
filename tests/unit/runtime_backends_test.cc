// What a session says about the time of its allreduces.
#include "rueda/runtime/backends.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rueda::runtime {
namespace {

using testing::HasSubstr;

Session session_of(std::vector<std::string> host_keys) {
  Session session;
  session.all = std::make_unique<std::vector<PeerInfo>>(host_keys.size());
  for (size_t rank = 0; rank < host_keys.size(); ++rank) {
    (*session.all)[rank].host_key = host_keys[rank];
    (*session.all)[rank].chunk_bytes = 256 << 10;
  }
  session.measured.local = {.latency_us = 1, .gbps = 8};
  session.measured.remote = {.latency_us = 40, .gbps = 0.1};
  return session;
}

TEST(Predictions, name_every_candidate_between_hosts_with_its_time) {
  const auto predictions = predict_allreduces(session_of({"a", "a", "b", "b"}));
  ASSERT_EQ(predictions.size(), 4u);
  EXPECT_EQ(predictions[2].bytes, 1 << 20);
  EXPECT_THAT(predictions[2].text,
              testing::AllOf(HasSubstr("direct: "), HasSubstr("; two_level: "), HasSubstr(" us")));
}

TEST(Predictions, say_that_an_algorithm_is_forced) {
  Session session = session_of({"a", "b"});
  session.all->front().algorithm = "ring";
  EXPECT_THAT(predict_allreduces(session)[0].text, HasSubstr("us, forced by name"));
}

TEST(Predictions, name_the_ways_of_shared_memory_on_one_host) {
  Session session = session_of({"a", "a"});
  session.reduces_in_shared_memory = true;
  const auto predictions = predict_allreduces(session);
  EXPECT_THAT(predictions[0].text, HasSubstr("in shared memory, one_shot: "));
  EXPECT_THAT(predictions[3].text, HasSubstr("in shared memory, staged: "));
  EXPECT_THAT(predictions[3].text, HasSubstr("us where all tensors lie in shared buffers"));
}

TEST(PlanBuckets, grow_with_what_the_network_carries_during_its_latency) {
  Session session = session_of({"a", "b", "c", "d"});
  session.measured.remote = {.latency_us = 40, .gbps = 0.12};  // 1 Gbit/s
  EXPECT_EQ(plan_bucket_bytes(session), 1 << 20);
  session.measured.remote = {.latency_us = 40, .gbps = 12};  // 100 Gbit/s
  const int64_t fast = plan_bucket_bytes(session);
  EXPECT_GE(fast, 4 << 20);
  session.measured.remote = {.latency_us = 400, .gbps = 12};
  EXPECT_GT(plan_bucket_bytes(session), fast);
  session.measured.remote = {.latency_us = 40'000, .gbps = 12};
  EXPECT_EQ(plan_bucket_bytes(session), 16 << 20);
}

TEST(PlanBuckets, of_one_host_do_not_depend_on_a_network) {
  Session session = session_of({"a", "a"});
  session.measured.remote = {.latency_us = 40'000, .gbps = 12};
  EXPECT_EQ(plan_bucket_bytes(session), 1 << 20);
}

TEST(Predictions, are_none_for_a_rank_alone) { EXPECT_TRUE(predict_allreduces(session_of({"a"})).empty()); }

}  // namespace
}  // namespace rueda::runtime
