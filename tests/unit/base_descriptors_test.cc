// The limit of open files: raised where that is allowed, named where it is not.
#include "rueda/base/descriptors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cerrno>

namespace rueda::base_descriptors_test {
namespace {

using testing::HasSubstr;

class DescriptorLimit : public testing::Test {
 protected:
  DescriptorLimit() { EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0); }
  ~DescriptorLimit() override { EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before_), 0); }
  static rlim_t soft() {
    rlimit now{};
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &now), 0);
    return now.rlim_cur;
  }
  void set_soft(rlim_t value) const {
    const rlimit limit{value, before_.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  }

  rlimit before_{};
};

TEST_F(DescriptorLimit, is_raised_to_what_is_wanted_and_never_lowered) {
  set_soft(64);
  ASSERT_GE(before_.rlim_max, 640u);
  EXPECT_EQ(allow_descriptors(640), "");
  EXPECT_EQ(soft(), 640u);
  EXPECT_EQ(allow_descriptors(100), "");
  EXPECT_EQ(soft(), 640u);
}

TEST_F(DescriptorLimit, that_is_too_low_for_good_is_named) {
  if (before_.rlim_max == RLIM_INFINITY) GTEST_SKIP() << "no hard limit here";
  EXPECT_THAT(allow_descriptors(before_.rlim_max + 1),
              testing::AllOf(HasSubstr(std::to_string(before_.rlim_max)), HasSubstr("ulimit -Hn")));
  EXPECT_EQ(soft(), before_.rlim_max) << "as far as it goes";
}

TEST_F(DescriptorLimit, is_named_by_whoever_hits_it) {
  set_soft(77);
  EXPECT_TRUE(is_out_of_descriptors(EMFILE) && is_out_of_descriptors(ENFILE));
  EXPECT_FALSE(is_out_of_descriptors(ENOMEM));
  EXPECT_THAT(out_of_descriptors(EMFILE).why, testing::AllOf(HasSubstr("77"), HasSubstr("ulimit -n")));
  EXPECT_THAT(out_of_descriptors(ENFILE).why, HasSubstr("fs.file-max"));
}

TEST_F(DescriptorLimit, free_ones_are_what_may_still_be_opened) {
  const uint64_t free = free_descriptors();
  set_soft(soft() - 10);
  EXPECT_EQ(free_descriptors(), free - 10);
  set_soft(1);
  EXPECT_EQ(free_descriptors(), 0u);
}

TEST(Descriptors, five_for_each_peer_are_wanted_at_least_or_three_on_the_same_host) {
  for (const int32_t ranks : {1, 32, 1000}) {
    const auto count = static_cast<uint64_t>(ranks);
    EXPECT_GE(descriptors_for(ranks, 1), 5 * count);
    EXPECT_GE(descriptors_for(ranks, ranks), 3 * count);
    EXPECT_LT(descriptors_for(ranks, ranks), descriptors_for(ranks, 0));
    EXPECT_EQ(descriptors_for(ranks, -1), descriptors_for(ranks, 0));  // unknown
    EXPECT_EQ(descriptors_for(ranks, ranks + 1), descriptors_for(ranks, ranks));
  }
}

}  // namespace
}  // namespace rueda::base_descriptors_test
