#include "rueda/runtime/static_sets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rueda/base/limits.h"

namespace rueda::runtime::static_sets_test {
namespace {

using Sets = std::vector<std::vector<Rank>>;
using testing::HasSubstr;

// One rank for each list; own[r] are the places in it that this rank names for itself.
std::vector<PeerInfo> ranks_that_name(const std::vector<Sets>& lists,
                                      const std::vector<std::vector<int32_t>>& own = {}) {
  std::vector<PeerInfo> all(lists.size());
  for (size_t r = 0; r < lists.size(); ++r) {
    all[r].process_sets = lists[r];
    if (!own.empty()) all[r].own_sets = own[r];
  }
  return all;
}

TEST(StaticSets, that_differ_in_number_size_or_values_are_refused) {
  EXPECT_THAT(
      agreed_sets(ranks_that_name({{{0, 1}}, {{0, 1}}, {}})).status().why,
      HasSubstr("Different ranks tried to set up mismatching numbers of process sets: rank 0 1, rank 2 0"));
  EXPECT_THAT(
      agreed_sets(ranks_that_name({{}, {{0, 1}}})).status().why,
      HasSubstr("Different ranks tried to set up mismatching numbers of process sets: rank 0 0, rank 1 1"));
  EXPECT_THAT(agreed_sets(ranks_that_name({{{0, 1}}, {{0, 1}}, {{0, 2}}})).status().why,
              HasSubstr("entry number 1 has mismatching values on different ranks: rank 0 and rank 2"));
  EXPECT_THAT(agreed_sets(ranks_that_name({{{}, {0, 1}}, {{}, {0, 1, 2}}})).status().why,
              HasSubstr("entry number 2 has mismatching size on different ranks"));
  EXPECT_EQ(agreed_sets(ranks_that_name({{{0, 1}}, {{0, 1}}})).value(), (Sets{{0, 1}}));
}

TEST(StaticSets, of_communicators_are_joined_by_place_and_rank) {
  const std::vector<std::vector<int32_t>> all_own = {{0, 1}, {0, 1}, {0, 1}, {0, 1}};
  const std::vector<Sets> rows_and_columns = {
      {{0, 1}, {0, 2}}, {{0, 1}, {1, 3}}, {{2, 3}, {0, 2}}, {{2, 3}, {1, 3}}};
  EXPECT_EQ(agreed_sets(ranks_that_name(rows_and_columns, all_own)).value(),
            (Sets{{0, 1}, {2, 3}, {0, 2}, {1, 3}}));
  EXPECT_EQ(agreed_sets(ranks_that_name({{{0, 1}, {0}}, {{1}, {0, 1}}}, {{0, 1}, {0, 1}})).value(),
            (Sets{{0, 1}, {1}, {0}}))
      << "a set that two ranks name in different places";
}

TEST(StaticSets, of_communicators_leave_the_other_entries_to_agree) {
  const std::vector<std::vector<int32_t>> second_own = {{1}, {1}};
  EXPECT_EQ(agreed_sets(ranks_that_name({{{0, 1}, {0}}, {{0, 1}, {1}}}, second_own)).value(),
            (Sets{{0, 1}, {0}, {1}}));
  EXPECT_THAT(agreed_sets(ranks_that_name({{{0}, {0}}, {{1}, {1}}}, second_own)).status().why,
              HasSubstr("entry number 1 has mismatching values"));
}

TEST(StaticSets, of_communicators_may_be_lists_or_missing_on_ranks_without_one) {
  EXPECT_EQ(agreed_sets(ranks_that_name({{{0, 2}}, {{0, 2}}, {{0, 2}}}, {{0}, {}, {0}})).value(),
            (Sets{{0, 2}}));
  EXPECT_EQ(agreed_sets(ranks_that_name({{{0, 2}}, {}, {{0, 2}}}, {{0}, {}, {0}})).value(), (Sets{{0, 2}}));
  EXPECT_THAT(agreed_sets(ranks_that_name({{{0}}, {{1}}, {{2}}}, {{0}, {}, {}})).status().why,
              HasSubstr("entry number 1 has mismatching values on different ranks: rank 1 and rank 2"));
}

TEST(StaticSets, that_are_named_again_exist_once) {
  const Sets twice = {{0}, {1}, {0}};
  EXPECT_EQ(agreed_sets(ranks_that_name({twice, twice})).value(), (Sets{{0}, {1}}));
}

TEST(StaticSets, refuse_bad_ranks_and_more_sets_than_may_exist) {
  EXPECT_THAT(check_process_sets({{0, 3}}, 3).why, HasSubstr("invalid rank: 3"));
  EXPECT_THAT(check_process_sets({{-1}}, 3).why, HasSubstr("invalid rank: -1"));
  EXPECT_THAT(check_process_sets({{0}, {1, 1}}, 3).why,
              HasSubstr("duplicate rank: 1 in process_sets entry number 2"));
  EXPECT_TRUE(check_process_sets({{0, 1, 2}}, 3).is_ok());
  EXPECT_TRUE(check_process_sets({{0}, {0, 1}, {}, {0}}, 3).is_ok());
  EXPECT_THAT(check_process_sets(Sets(kMaxGroups + 1), 3).why, HasSubstr("process_sets holds 4097 sets"));
}

}  // namespace
}  // namespace rueda::runtime::static_sets_test
