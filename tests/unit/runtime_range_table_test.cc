#include "rueda/runtime/range_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iostream>
#include <random>
#include <vector>

namespace rueda::runtime::range_table_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAreArray;

std::vector<int> overlaps(RangeTable<int>& table, const Range& range) {
  std::vector<int> found;
  table.for_each_overlap(range, [&](const Range&, int value) { found.push_back(value); });
  return found;
}

TEST(RangeTable, ranges_that_touch_do_not_overlap) {
  RangeTable<int> table;
  table.add({10, 20}, 1);
  table.add({20, 30}, 2);
  EXPECT_THAT(overlaps(table, {0, 10}), IsEmpty());
  EXPECT_THAT(overlaps(table, {19, 20}), ElementsAre(1));
  EXPECT_THAT(overlaps(table, {19, 21}), ElementsAre(1, 2));
  EXPECT_THAT(overlaps(table, {30, 31}), IsEmpty());
}

TEST(RangeTable, an_entry_is_erased_by_its_range_and_value) {
  RangeTable<int> table;
  table.add({10, 20}, 1);
  table.add({10, 20}, 2);
  table.add({15, 20}, 3);
  table.erase_if({10, 20}, [](int value) { return value == 1; });
  table.erase_if({10, 19}, [](int) { return true; });
  EXPECT_EQ(table.size(), 2u);
  EXPECT_THAT(overlaps(table, {0, 99}), ElementsAre(2, 3));
}

// Compared with a list that is searched from end to end.
TEST(RangeTable, agrees_with_a_list_after_random_changes) {
  const uint64_t seed = std::random_device{}();
  std::cout << "seed " << seed << "\n";
  std::mt19937_64 random(seed);
  RangeTable<int> table;
  std::vector<std::pair<Range, int>> list;
  const auto any_range = [&] {
    const uintptr_t begin = 1 + random() % 60;
    return Range{begin, begin + 1 + random() % (random() % 8 == 0 ? 40 : 4)};
  };
  for (int i = 0; i < 20'000; ++i) {
    if (list.size() < 12 && random() % 2 == 0) {
      list.emplace_back(any_range(), i);
      table.add(list.back().first, i);
    } else if (!list.empty() && random() % 2 == 0) {
      const size_t at = random() % list.size();
      const auto [range, value] = list[at];
      table.erase_if(range, [&](int one) { return one == value; });
      list.erase(list.begin() + static_cast<ptrdiff_t>(at));
    } else if (random() % 16 == 0) {
      const auto is_old = [&](int value) { return value % 3 == 0; };
      table.erase_all_if(is_old);
      std::erase_if(list, [&](const auto& one) { return is_old(one.second); });
    }
    const Range range = any_range();
    std::vector<int> expected;
    for (const auto& [one, value] : list)
      if (one.overlaps(range)) expected.push_back(value);
    ASSERT_THAT(overlaps(table, range), UnorderedElementsAreArray(expected)) << "change " << i;
    ASSERT_EQ(table.size(), list.size());
  }
}

}  // namespace
}  // namespace rueda::runtime::range_table_test
