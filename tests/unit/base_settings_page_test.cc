// docs/settings.md is printed from the table of settings; this fails when the table changed and
// the page did not.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "rueda/base/config_table.h"

namespace rueda::base_settings_page_test {
namespace {

TEST(SettingsPage, documents_exactly_the_table_of_settings) {
  std::ifstream file(RUEDA_SETTINGS_PAGE);
  ASSERT_TRUE(file.is_open()) << "there is no " << RUEDA_SETTINGS_PAGE;
  std::ostringstream page;
  page << file.rdbuf();
  EXPECT_EQ(page.str(), config_markdown()) << "run: cmake --build build/release --target docs";
}

}  // namespace
}  // namespace rueda::base_settings_page_test
