#include "launch/start_progress.h"

#include <gmock/gmock.h>

#include "rueda/store/arrived.h"

namespace rueda::launch::start_progress_test {
namespace {

TEST(NoticePace, lines_of_a_log_become_rarer_and_a_terminal_is_kept_up_to_date) {
  NoticePace log(false), terminal(true);
  int in_log = 0, on_terminal = 0;
  for (int second = 0; second < 60; ++second) {
    in_log += log.is_due(second * kSecond) ? 1 : 0;
    on_terminal += terminal.is_due(second * kSecond) ? 1 : 0;
    if (second == 4) {
      EXPECT_EQ(in_log + on_terminal, 0);
    }
  }
  EXPECT_EQ(in_log, 6);  // 5, 10, 15, 22, 33, 49
  EXPECT_EQ(on_terminal, 55);
}

TEST(Shortened, names_eight_and_counts_the_rest) {
  std::vector<std::string> names(8, "n");
  EXPECT_EQ(shortened(names), "n, n, n, n, n, n, n, n");
  names.resize(520, "m");
  EXPECT_EQ(shortened(names), "n, n, n, n, n, n, n, n and 512 more");
}

TEST(InitWatch, names_the_missing_ranks_with_their_hosts) {
  InitWatch watch(6, false);
  const auto hosts = [](Rank rank) -> std::string_view { return rank < 3 ? "a" : "b"; };
  EXPECT_EQ(watch.notice(hosts, 100 * kSecond), "");  // a program without init
  watch.on_arrival(1, 100 * kSecond);
  watch.on_arrival(1, 103 * kSecond);
  EXPECT_EQ(watch.notice(hosts, 104 * kSecond), "");
  EXPECT_EQ(watch.notice(hosts, 106 * kSecond),
            "still waiting for 5 of 6 ranks in init after 6 s: 0, 2 on a, 3-5 on b (not called yet, or no "
            "connection to this machine)");
  for (const Rank rank : {0, 2, 3, 5}) watch.on_arrival(rank, 107 * kSecond);
  EXPECT_THAT(watch.notice(hosts, 120 * kSecond),
              testing::HasSubstr("still waiting for 1 of 6 ranks in init after 20 s: 4 on b ("));
  watch.on_arrival(77, 121 * kSecond);  // of another world
  EXPECT_FALSE(watch.is_over());
  watch.on_arrival(4, 121 * kSecond);
  EXPECT_TRUE(watch.is_over());
}

TEST(Arrival, a_batch_names_its_ranks) {
  const std::string batch = store::encode_entries({{3, ""}, {12, ""}});
  EXPECT_THAT(store::parse_arrivals("arrived/rank3", batch), testing::ElementsAre(3, 12));
  EXPECT_THAT(store::parse_arrivals("init1/rank3", batch), testing::IsEmpty());
  EXPECT_THAT(store::parse_arrivals("arrived/rank3", "x"), testing::IsEmpty());
}

}  // namespace
}  // namespace rueda::launch::start_progress_test
