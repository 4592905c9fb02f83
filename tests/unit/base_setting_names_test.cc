#include "rueda/base/setting_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rueda::base_setting_names_test {
namespace {

using testing::HasSubstr;

TEST(SettingNames, a_misspelt_name_is_told_the_nearest_known_one) {
  EXPECT_EQ(nearest_setting("RUEDA_FUSION_TRESHOLD"), "RUEDA_FUSION_THRESHOLD");
  EXPECT_EQ(nearest_setting("HOROVOD_CYCLETIME"), "HOROVOD_CYCLE_TIME");
  EXPECT_EQ(nearest_setting("RUEDA_TORCHARENA"), "RUEDA_TORCH_ARENA");
  EXPECT_EQ(nearest_setting("RUEDA_SOMETHING_ELSE_ALTOGETHER"), "");
}

TEST(SettingNames, only_rueda_names_that_are_nearly_known_are_misspelt) {
  const std::vector<std::string> sentences =
      misspelt_settings(std::vector<std::pair<std::string, std::string>>{{"RUEDA_CYCLE_TIEM", "2"},
                                                                         {"RUEDA_CYCLE_TIME", "2"},
                                                                         {"RUEDA_PLAN", ""},
                                                                         {"RUEDA_SOMETHING_OF_THE_SITE", "1"},
                                                                         {"HOROVOD_CYCLETIME", "2"}});
  ASSERT_EQ(sentences.size(), 1U);
  EXPECT_THAT(sentences[0], HasSubstr("RUEDA_CYCLE_TIEM"));
  EXPECT_THAT(sentences[0], HasSubstr("did you mean RUEDA_CYCLE_TIME?"));
}

}  // namespace
}  // namespace rueda::base_setting_names_test
