// The worked example at the top of link_speeds.h.
#include <gtest/gtest.h>

#include "timeline/link_speeds.h"

namespace rueda::timeline::examples_test {
namespace {

constexpr int64_t kMiB = 1 << 20;

// 40 MiB in messages of 1 MiB on each link of three hosts, 40 MiB/s.
LinkTotals three_hosts() {
  LinkTotals totals;
  for (const Rank from : {0, 1, 2})
    for (const Rank to : {0, 1, 2})
      if (from != to) totals[{from, to}] = {.bytes = 40 * kMiB, .busy = kSecond, .pauses = 40};
  return totals;
}

TEST(LinkSpeedsExample, the_faster_of_two_measurements_is_the_speed) {
  const LinkTotal late_acknowledgements{.bytes = 40 * kMiB,
                                        .busy = 2 * kSecond,
                                        .pauses = 40,
                                        .awaited_bytes = 30 * kMiB,
                                        .awaited = 3 * kSecond / 4};
  EXPECT_NEAR(speed_of(late_acknowledgements) * kSecond / kMiB, 40, 0.01);
}

TEST(LinkSpeedsExample, one_slow_link_is_a_pair_and_two_from_one_host_are_a_port) {
  LinkTotals totals = three_hosts();
  EXPECT_TRUE(find_slow_links(totals).empty());
  totals[{2, 0}].busy = 10 * kSecond;
  const std::vector<SlowLink> pair = find_slow_links(totals);
  ASSERT_EQ(pair.size(), 1u);
  EXPECT_EQ(pair[0].end, 2);
  EXPECT_EQ(pair[0].other, 0);
  EXPECT_TRUE(pair[0].sends);
  EXPECT_NEAR(pair[0].speed * kSecond / kMiB, 4, 0.01);
  EXPECT_NEAR(pair[0].usual * kSecond / kMiB, 40, 0.01);
  totals[{2, 1}].busy = 10 * kSecond;
  const std::vector<SlowLink> port = find_slow_links(totals);
  ASSERT_EQ(port.size(), 1u);
  EXPECT_EQ(port[0].end, 2);
  EXPECT_EQ(port[0].other, -1);
  EXPECT_TRUE(port[0].sends && !port[0].receives);
}

}  // namespace
}  // namespace rueda::timeline::examples_test
