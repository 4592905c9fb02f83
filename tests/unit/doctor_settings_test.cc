#include "doctor/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rueda::doctor::settings_test {
namespace {

using testing::HasSubstr;

TEST(DoctorSettings, what_is_set_is_listed_and_what_is_unknown_is_advice) {
  const Section section = examine_settings(
      {{"PATH", "/bin"}, {"RUEDA_CYCLE_TIME", "2"}, {"HOROVOD_LOG_LEVL", "info"}, {"RUEDA_PLANS", ""}});
  ASSERT_EQ(section.facts.size(), 1U);
  EXPECT_EQ(section.facts[0].name, "RUEDA_CYCLE_TIME");
  ASSERT_EQ(section.problems.size(), 1U);
  EXPECT_FALSE(section.problems[0].is_broken);
  EXPECT_THAT(section.problems[0].sentence, HasSubstr("HOROVOD_LOG_LEVL"));
  EXPECT_THAT(section.problems[0].sentence, HasSubstr("did you mean HOROVOD_LOG_LEVEL?"));
}

TEST(DoctorSettings, every_value_that_init_would_refuse_is_broken) {
  const Section section = examine_settings({{"RUEDA_CYCLE_TIME", "soon"}, {"RUEDA_TRANSPORTS", "pigeon"}});
  ASSERT_EQ(section.problems.size(), 2U);
  for (const Problem& problem : section.problems) EXPECT_TRUE(problem.is_broken);
  EXPECT_THAT(section.problems[0].sentence, HasSubstr("RUEDA_CYCLE_TIME='soon' is refused"));
  EXPECT_THAT(section.problems[1].sentence, HasSubstr("RUEDA_TRANSPORTS='pigeon' is refused"));
}

TEST(DoctorSettings, what_horovod_followed_and_rueda_does_not_is_advice) {
  const Section section = examine_settings({{"HOROVOD_HIERARCHICAL_ALLGATHER", "1"}});
  ASSERT_EQ(section.problems.size(), 1U);
  EXPECT_FALSE(section.problems[0].is_broken);
}

TEST(DoctorSettings, nothing_set_is_no_problem) {
  const Section section = examine_settings({});
  EXPECT_TRUE(section.problems.empty());
  ASSERT_EQ(section.facts.size(), 1U);
  EXPECT_EQ(section.facts[0].value, "none");
}

}  // namespace
}  // namespace rueda::doctor::settings_test
