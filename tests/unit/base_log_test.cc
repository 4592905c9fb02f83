#include "rueda/base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace rueda::base_log_test {
namespace {

using testing::HasSubstr;

TEST(LogOnce, says_a_text_once_and_only_if_its_level_is_on) {
  const auto log = [](const std::string& text) {
    testing::internal::CaptureStderr();
    RUEDA_LOG_ONCE(kWarning, text);
    return testing::internal::GetCapturedStderr();
  };
  set_log_level(LogLevel::kError);
  EXPECT_EQ(log("a text of log_test"), "");
  set_log_level(LogLevel::kWarning);
  EXPECT_THAT(log("a text of log_test"), HasSubstr("]: a text of log_test\n"));
  EXPECT_EQ(log("a text of log_test"), "");
  EXPECT_THAT(log("another text of log_test"), HasSubstr("another text"));
}

TEST(LogOnce, remembers_a_bounded_number_of_texts) {
  for (int i = 0; i < 200; ++i) EXPECT_TRUE(is_new_in_log("text " + std::to_string(i)));
  EXPECT_FALSE(is_new_in_log("text 0"));
  EXPECT_TRUE(is_new_in_log("text 199")) << "forgotten, so it is said again";
}

}  // namespace
}  // namespace rueda::base_log_test
