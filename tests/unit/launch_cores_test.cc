#include "launch/cores.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace rueda::launch::cores_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Cores, every_rank_gets_whole_cores_while_there_are_enough) {
  const std::vector<PhysicalCore> cores = {{0, 4}, {1, 5}, {2, 6}, {3, 7}};
  EXPECT_THAT(share_of(cores, 1, 0), ElementsAre(0, 4, 1, 5, 2, 6, 3, 7));
  EXPECT_THAT(share_of(cores, 2, 0), ElementsAre(0, 4, 1, 5));
  EXPECT_THAT(share_of(cores, 2, 1), ElementsAre(2, 6, 3, 7));
  EXPECT_THAT(share_of(cores, 3, 0), ElementsAre(0, 4));
  EXPECT_THAT(share_of(cores, 3, 1), ElementsAre(1, 5));
  EXPECT_THAT(share_of(cores, 3, 2), ElementsAre(2, 6, 3, 7));
}

TEST(Cores, more_ranks_than_cores_share_these_but_no_cpu) {
  const std::vector<PhysicalCore> cores = {{0, 2}, {1, 3}};
  EXPECT_THAT(share_of(cores, 3, 0), ElementsAre(0));
  EXPECT_THAT(share_of(cores, 3, 1), ElementsAre(2));
  EXPECT_THAT(share_of(cores, 3, 2), ElementsAre(1, 3));
  EXPECT_THAT(share_of(cores, 5, 0), IsEmpty());
}

TEST(Cores, shares_cover_every_cpu_once) {
  for (size_t count = 1; count <= 20; ++count) {
    std::vector<PhysicalCore> cores;
    for (size_t i = 0; i < count; ++i) cores.push_back({static_cast<int>(i)});
    for (size_t ranks = 1; ranks <= count; ++ranks) {
      std::vector<int> all;
      for (size_t rank = 0; rank < ranks; ++rank) {
        const std::vector<int> share = share_of(cores, ranks, rank);
        EXPECT_GE(share.size(), count / ranks);
        EXPECT_LE(share.size(), count / ranks + 1);
        all.insert(all.end(), share.begin(), share.end());
      }
      ASSERT_EQ(all.size(), count);
      EXPECT_TRUE(std::ranges::adjacent_find(all, std::ranges::greater_equal()) == all.end());
    }
  }
}

TEST(Cores, this_machine_has_as_many_as_the_process_may_use) {
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  const std::vector<int> cpus = usable_cpus();
  EXPECT_EQ(cpus.size(), static_cast<size_t>(CPU_COUNT(&allowed)));
  for (const int cpu : cpus) EXPECT_TRUE(CPU_ISSET(cpu, &allowed));
  std::vector<int> in_cores;
  for (const PhysicalCore& core : physical_cores(cpus))
    in_cores.insert(in_cores.end(), core.begin(), core.end());
  EXPECT_THAT(in_cores, ::testing::UnorderedElementsAreArray(cpus));
}

}  // namespace
}  // namespace rueda::launch::cores_test
