// Tables of rows that copies share.
#include <gtest/gtest.h>

#include "rueda/control/messages.h"

namespace rueda::control {
namespace row_table_test {

TEST(control_row_table, copies_of_a_bucket_share_one_table) {
  Bucket bucket;
  bucket.entries.push_back({.name = "x", .shape = {6}, .rows = {1, 2, 3, 4}});
  const Bucket copy = bucket;
  EXPECT_EQ(copy.entries[0].rows.begin(), bucket.entries[0].rows.begin());
  EXPECT_EQ(copy, bucket);
}

TEST(control_row_table, tables_are_equal_that_have_equal_rows) {
  const RowTable rows = {1, 2}, same = {1, 2}, other = {1, 3}, none;
  EXPECT_EQ(rows, same);
  EXPECT_FALSE(rows == other);
  EXPECT_FALSE(rows == none);
  EXPECT_EQ(none, RowTable(std::vector<int64_t>()));
  EXPECT_TRUE(none.empty());
  EXPECT_EQ(none.begin(), none.end());
  EXPECT_EQ(same.list(), (std::vector<int64_t>{1, 2}));
}

}  // namespace row_table_test
}  // namespace rueda::control
