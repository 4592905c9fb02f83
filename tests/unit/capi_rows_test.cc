// rueda.hpp in a single-process job: what it takes as rows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rueda/rueda.hpp"

namespace {

TEST(SharedBuffers, of_more_elements_than_there_are_bytes_are_refused) {
  EXPECT_FALSE(rueda::SharedBuffer<float>::make(SIZE_MAX / 4 + 2).ok());
  EXPECT_FALSE(rueda::SharedBuffer<double>::make(SIZE_MAX).ok());
}

TEST(Rows, are_whole_or_refused) {
  rueda::Session session;
  const rueda::Outcome up = session.init(1);
  ASSERT_TRUE(up.ok()) << up.why;
  const std::vector<float> seven(7, 1.0F), eight(8, 1.0F);
  for (const int64_t row : {2, 0, -1}) {
    for (const rueda::Outcome& outcome : {rueda::allgather(seven, "gather", row).outcome(),
                                          rueda::reducescatter(seven, "scatter", row).outcome(),
                                          rueda::alltoall(seven, {}, "exchange", row).outcome()}) {
      EXPECT_EQ(outcome.code, RUEDA_INVALID_ARGUMENT);
      EXPECT_THAT(outcome.why,
                  testing::StartsWith("7 elements are not whole rows of " + std::to_string(row)));
    }
  }
  EXPECT_EQ(rueda::allgather(eight, "gather", 2).value(), eight);
  EXPECT_EQ(rueda::reducescatter(eight, "scatter", 4).value(), eight);
  EXPECT_EQ(rueda::alltoall(eight, {}, "exchange", 8).value().rows, eight);
}

TEST(Init, expects_no_impossible_size) {
  rueda::Session session;
  const rueda::Outcome refused = session.init(-1);
  EXPECT_EQ(refused.code, RUEDA_INVALID_ARGUMENT);
  EXPECT_THAT(refused.why, testing::HasSubstr("-1"));
}

}  // namespace
