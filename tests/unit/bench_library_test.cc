// Where a command looks for its library.
#include "bench/library.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace rueda::bench::library_test {
namespace {

namespace fs = std::filesystem;

class BenchLibrary : public ::testing::TestWithParam<const char*> {
 protected:
  BenchLibrary() {
    unsetenv("RUEDA_LIBRARY");
    fs::create_directories(root_ / "bin");
  }
  ~BenchLibrary() override { fs::remove_all(root_); }
  fs::path root_ = fs::path(testing::TempDir()) / ("rueda-library-" + std::to_string(getpid()));
};

TEST_P(BenchLibrary, is_found_where_pip_has_put_it) {
  const fs::path place = root_ / GetParam();
  EXPECT_THAT(find_library(root_ / "bin/rueda").status().why, ::testing::HasSubstr("was not found near"));
  fs::create_directories(place);
  std::ofstream(place / "librueda.so") << "\n";
  EXPECT_EQ(find_library(root_ / "bin/rueda").value(), (place / "librueda.so").string());
}

INSTANTIATE_TEST_SUITE_P(of_a_command, BenchLibrary,
                         ::testing::Values("bin", "lib", "lib/python3.11/site-packages/rueda/lib",
                                           "lib/python3.11/dist-packages/rueda/lib", "rueda/lib", "lib64",
                                           "lib64/python3.9/site-packages/rueda/lib"));

}  // namespace
}  // namespace rueda::bench::library_test
