// The embedded PTX of the kernels for CUDA devices: what the compiler has made of them, and that the
// assembler takes them for every kind of device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <regex>
#include <string>
#include <utility>

#include "rueda/base/types.h"
#include "rueda/memory/cuda/kernels_ptx.h"

namespace rueda::cuda::memory_cuda_ptx_test {
namespace {

using testing::HasSubstr;

// The text of each kernel, by name.
std::map<std::string, std::string> compiled_kernels() {
  std::map<std::string, std::string> all;
  const std::string text(kKernelsPtx), entry = ".visible .entry ";
  for (size_t begin = text.find(entry); begin != std::string::npos;) {
    const size_t name = begin + entry.size(), next = text.find(entry, name);
    all[text.substr(name, text.find('(', name) - name)] = text.substr(name, next - name);
    begin = next;
  }
  return all;
}

// A change of the source, or another compiler, may split them unseen.
TEST(CudaKernelsText, loads_and_stores_16_bytes_at_once_and_keeps_them_in_registers) {
  const std::regex load(R"(\bld(\.global)?(\.nc)?\.(v4\.[buf]32|v2\.[buf]64)\b)");
  const std::regex store(R"(\bst(\.global)?\.(v4\.[buf]32|v2\.[buf]64)\b)");
  const std::regex is_wide("rueda_(pack|unpack|((un)?pack_scaled|cast|scale|add|sum|combine)_.*)");
  size_t wide = 0;
  for (const auto& [name, text] : compiled_kernels()) {
    EXPECT_EQ(text.find(".local"), std::string::npos) << name;
    if (!std::regex_match(name, is_wide)) continue;
    ++wide;
    EXPECT_TRUE(std::regex_search(text, load)) << name;
    EXPECT_TRUE(std::regex_search(text, store)) << name;
  }
  EXPECT_EQ(wide, 2U + 2U * 4U + 4U + 3U * kDTypeCount + 2U);
}

// The output of a command of the shell, and its status.
std::pair<std::string, int> run(const std::string& command) {
  std::string output;
  std::FILE* const pipe = popen(command.c_str(), "r");
  for (int c = pipe == nullptr ? EOF : std::fgetc(pipe); c != EOF; c = std::fgetc(pipe))
    output += static_cast<char>(c);
  return {output, pipe == nullptr ? -1 : pclose(pipe)};
}

TEST(CudaKernelsText, is_assembled_for_every_kind_of_device) {
  EXPECT_THAT(std::string(kKernelsPtx), HasSubstr(".version 5.0"));  // every supported driver compiles it
  if (std::system("ptxas --version > /dev/null 2>&1") != 0)
    GTEST_SKIP() << "there is no ptxas; it comes with the CUDA toolkit";
  const auto cubin = std::filesystem::temp_directory_path() / ("kernels-" + std::to_string(getpid()));
  // With more registers for each of 256 threads, a multiprocessor has room for one block only.
  const std::regex registers("Used ([0-9]+) registers");
  for (const char* kind : {"75", "80", "90", "100", "120"}) {
    const std::string command =
        "ptxas -v -arch=sm_" + std::string(kind) + " " RUEDA_KERNELS_PTX " -o " + cubin.string() + " 2>&1";
    const auto [output, status] = run(command);
    EXPECT_EQ(status, 0) << output;
    std::smatch used;
    for (std::string rest = output; std::regex_search(rest, used, registers); rest = used.suffix())
      EXPECT_LE(std::stoi(used[1]), 128) << used.prefix();
  }
  std::filesystem::remove(cubin);
}

}  // namespace
}  // namespace rueda::cuda::memory_cuda_ptx_test
