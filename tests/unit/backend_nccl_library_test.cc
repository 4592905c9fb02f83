// Finding libnccl, with libraries of the tests' own, and with NVIDIA's where its wheel is installed: it loads
// without a GPU.
#include "rueda/backend/nccl/library.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>

#include "nccl_fixture.h"

namespace rueda::nccl::backend_nccl_library_test {
namespace {

using nccl_test::control;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

std::string refusal(const std::string& path) {
  const auto opened = Library::open(path);
  return opened.is_ok() ? "it is accepted" : opened.status().why;
}

TEST(NcclLibrary, is_opened_by_its_path) {
  const auto opened = Library::open(nccl_test::kLibrary);
  ASSERT_TRUE(opened.is_ok()) << opened.status().why;
  EXPECT_EQ(opened.value()->version(), 23004);
  EXPECT_EQ(opened.value()->path(), nccl_test::kLibrary);
}

TEST(NcclLibrary, that_is_loaded_already_is_taken) {
  ASSERT_NE(dlopen(nccl_test::kPartialLibrary, RTLD_LAZY | RTLD_LOCAL), nullptr);
  EXPECT_THAT(refusal(""), HasSubstr("libnccl_partial.so.2 (NCCL 2.21.5) has no function"));
}

TEST(NcclLibrary, that_is_too_old_is_refused_with_both_versions) {
  for (const auto& [version, text] : {std::pair(21703, "2.17.3"), std::pair(2708, "2.7.8")}) {
    control().version = version;
    EXPECT_THAT(refusal(nccl_test::kLibrary),
                AllOf(HasSubstr("is NCCL " + std::string(text)), HasSubstr("needs 2.18.0 or later")));
  }
  control().version = 21800;
  EXPECT_TRUE(Library::open(nccl_test::kLibrary).is_ok());
  control().version = 23004;
}

TEST(NcclLibrary, that_is_only_asked_for_its_version_is_not_loaded_afterwards) {
  const std::string copy = testing::TempDir() + "/libnccl-" + std::to_string(getpid());
  std::filesystem::copy_file(nccl_test::kLibrary, copy);
  EXPECT_EQ(Library::version_at(copy).value(), 23004);
  EXPECT_EQ(dlopen(copy.c_str(), RTLD_LAZY | RTLD_NOLOAD), nullptr);
  std::filesystem::remove(copy);
  EXPECT_THAT(Library::version_at(copy).status().why, HasSubstr("cannot be loaded"));
}

TEST(NcclLibrary, that_lacks_a_function_is_refused_by_its_name) {
  EXPECT_THAT(refusal(nccl_test::kPartialLibrary),
              AllOf(HasSubstr("(NCCL 2.21.5)"), HasSubstr("has no function ncclGetUniqueId")));
}

TEST(NcclLibrary, that_is_none_or_missing_is_refused) {
  EXPECT_THAT(refusal("libm.so.6"), HasSubstr("RUEDA_NCCL_LIBRARY=libm.so.6 does not tell its version"));
  EXPECT_THAT(refusal("/nowhere/libnccl.so.2"),
              AllOf(HasSubstr("/nowhere/libnccl.so.2 cannot be loaded"), HasSubstr("install nvidia-nccl")));
}

TEST(NcclLibrary, of_the_wheel_lies_in_the_same_site_packages) {
  EXPECT_THAT(wheel_paths("/env/site-packages/rueda/lib/librueda.so"),
              ElementsAre("/env/site-packages/rueda/lib/nvidia/nccl/lib/libnccl.so.2",
                          "/env/site-packages/rueda/nvidia/nccl/lib/libnccl.so.2",
                          "/env/site-packages/nvidia/nccl/lib/libnccl.so.2"));
  EXPECT_THAT(wheel_paths("librueda.so"), ElementsAre());
}

TEST(NcclLibrary, of_the_wheel_may_lie_in_lib_where_binary_packages_lie_in_lib64) {
  EXPECT_THAT(wheel_paths("/usr/lib64/python3.9/site-packages/rueda/lib/librueda.so"),
              Contains("/usr/lib/python3.9/site-packages/nvidia/nccl/lib/libnccl.so.2"));
  EXPECT_THAT(wheel_paths("/D/rueda/lib/librueda.so"), Contains("/D/nvidia/nccl/lib/libnccl.so.2"));
}

TEST(NcclLibrary, errors_are_sentences_with_what_nccl_says) {
  const auto library = Library::open(nccl_test::kLibrary).value();
  EXPECT_TRUE(library->check(kSuccess, "f").is_ok());
  EXPECT_TRUE(library->check(kInProgress, "f").is_ok());
  const Status lost = library->check(kRemoteError, "NCCL in the world (ranks 0, 1)");
  EXPECT_EQ(lost.code, Code::kPeerLost);
  EXPECT_THAT(lost.why, AllOf(HasSubstr("NCCL in the world (ranks 0, 1) failed: remote process exited"),
                              HasSubstr("NCCL_DEBUG=INFO")));
  EXPECT_EQ(library->check(kInvalidUsage, "f").code, Code::kUnavailable);
}

// The declarations in abi.h against the real library.
TEST(NcclLibrary, of_nvidia_has_every_function_and_makes_ids) {
  if (std::string_view(RUEDA_NVIDIA_NCCL).empty())
    GTEST_SKIP() << "the wheel nvidia-nccl-cu12 is not installed";
  const auto opened = Library::open(RUEDA_NVIDIA_NCCL "/lib/libnccl.so.2");
  ASSERT_TRUE(opened.is_ok()) << opened.status().why;
  EXPECT_GE(opened.value()->version(), kLeastVersion);
  UniqueId one = {}, other = {};
  EXPECT_EQ(opened.value()->call().GetUniqueId(&one), kSuccess);
  EXPECT_EQ(opened.value()->call().GetUniqueId(&other), kSuccess);
  EXPECT_NE(std::memcmp(&one, &other, sizeof(one)), 0);
}

}  // namespace
}  // namespace rueda::nccl::backend_nccl_library_test
