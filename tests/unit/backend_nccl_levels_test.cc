#include "rueda/backend/nccl/levels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

namespace rueda::nccl::backend_nccl_levels_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

schedule::Topology on(std::vector<int32_t> hosts) {
  schedule::Topology topology;
  topology.host_of = std::move(hosts);
  return topology;
}

Group group_of(std::vector<Rank> members, Rank me) {
  return {.id = 3, .epoch = 7, .members = std::move(members), .me = me};
}

TEST(NcclLevels, a_member_meets_those_of_its_host_and_those_at_its_place_in_other_hosts) {
  const auto made = levels_of(group_of({10, 11, 12, 13, 14, 15}, 4), on({0, 1, 0, 1, 1, 0}));
  ASSERT_TRUE(made.levels);
  EXPECT_THAT(made.levels->inside.members, ElementsAre(11, 13, 14));
  EXPECT_EQ(made.levels->inside.me, 2);
  EXPECT_THAT(made.levels->between.members, ElementsAre(14, 15));
  EXPECT_EQ(made.levels->between.me, 0);
  EXPECT_EQ(made.levels->between.id, 3);
  EXPECT_EQ(made.levels->between.epoch, 7);
}

TEST(NcclLevels, one_host_and_hosts_of_one_rank_have_one_level_and_nothing_to_explain) {
  for (const auto& hosts : {std::vector<int32_t>{0, 0, 0}, {0, 1, 2}}) {
    const auto made = levels_of(group_of({0, 1, 2}, 1), on(hosts));
    EXPECT_FALSE(made.levels);
    EXPECT_THAT(made.why_not, IsEmpty());
  }
}

TEST(NcclLevels, hosts_of_different_sizes_are_refused_with_their_sizes) {
  const auto made = levels_of(group_of({0, 1, 2}, 1), on({0, 0, 1}));
  EXPECT_FALSE(made.levels);
  EXPECT_THAT(made.why_not, HasSubstr("the hosts have 2, 1"));
}

TEST(NcclLevels, shares_cover_all_elements_and_the_last_member_has_what_is_left_over) {
  for (const int64_t count : {0, 1, 2, 7, 9, 1000}) {
    for (const Rank n : {1, 2, 3, 4}) {
      int64_t next = 0;
      for (Rank me = 0; me < n; ++me) {
        const backend::ElementRange share = share_of(count, me, n);
        EXPECT_EQ(share.begin, next);
        EXPECT_EQ(share.count, count / n + (me == n - 1 ? count % n : 0));
        next += share.count;
      }
      EXPECT_EQ(next, count);
    }
  }
}

std::array<std::byte, 256> given, taken;

schedule::Spec halves() {
  return {.dtype = DType::kFloat16, .op = ReduceOp::kMax, .counts = {}, .scale = {}, .segment_counts = {}};
}
const DeviceRun kSeven{.input = given.data(), .output = taken.data(), .count = 7, .counts = {}};

TEST(NcclLevels, a_host_reduces_each_share_to_its_member) {
  const auto even = [](Rank me) {
    return Step{Function::kReduceScatter, given.data(), taken.data() + me * 4, 2, kFloat16, kMax, 0};
  };
  EXPECT_THAT(
      reducing_steps_of(halves(), kSeven, 0, 3),
      ElementsAre(even(0), Step{Function::kReduce, given.data() + 12, nullptr, 1, kFloat16, kMax, 2}));
  EXPECT_THAT(reducing_steps_of(halves(), kSeven, 2, 3),
              ElementsAre(even(2), Step{Function::kReduce, given.data() + 12, taken.data() + 12, 1, kFloat16,
                                        kMax, 2}));
}

TEST(NcclLevels, a_host_gathers_the_shares_as_bytes) {
  EXPECT_THAT(
      gathering_steps_of(halves(), kSeven, 1, 3),
      ElementsAre(Step{Function::kAllGather, taken.data() + 4, taken.data(), 4, kUint8, kSum, 0},
                  Step{Function::kBroadcast, taken.data() + 12, taken.data() + 12, 2, kUint8, kSum, 2}));
}

TEST(NcclLevels, what_has_no_elements_has_no_steps) {
  auto run = kSeven;
  run.count = 0;
  EXPECT_THAT(reducing_steps_of(halves(), run, 0, 2), IsEmpty());
  run.count = 4;
  EXPECT_EQ(reducing_steps_of(halves(), run, 0, 2).size(), 1U);
  run.count = 1;
  EXPECT_EQ(gathering_steps_of(halves(), run, 0, 2).front().function, Function::kBroadcast);
}

}  // namespace
}  // namespace rueda::nccl::backend_nccl_levels_test
