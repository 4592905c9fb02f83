#include "rueda/backend/mpi/find.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "backend_mpi_fake.h"
#include "rueda/backend/mpi/reduce_functions.h"

namespace rueda::backend::mpi::backend_mpi_find_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

GetEnv environment(std::map<std::string, std::string> variables) {
  return [variables = std::move(variables)](const char* name) -> const char* {
    const auto at = variables.find(name);
    return at == variables.end() ? nullptr : at->second.c_str();
  };
}

TEST(MpiFind, versions_are_told_in_the_words_of_people) {
  EXPECT_EQ(short_version("Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4"), "Open MPI 4.1.4");
  EXPECT_EQ(short_version("MPICH Version:\t4.0.2\nMPICH Release date:\tThu Apr  7"), "MPICH 4.0.2");
  EXPECT_EQ(short_version("MPICH Version:      5.0.2\nMPICH Release date: x"), "MPICH 5.0.2");
  EXPECT_EQ(short_version("Intel(R) MPI Library 2021.19.0 for Linux* OS\n"), "Intel MPI 2021.19.0");
}

TEST(MpiFind, the_c_libraries_of_an_mpi_are_recognised_among_loaded_files) {
  const std::vector<std::string> loaded = {"/usr/lib/libc.so.6",          "/usr/lib/libmpi_cxx.so.40",
                                           "/opt/lib/libmpifort.so.12",   "/usr/lib/libmpi.so.40.30.4",
                                           "/usr/lib/libmpich.so.12",     "/opt/libmpi_abi.so.1",
                                           "/opt/cray/libmpi_cray.so.12", "/opt/cray/libmpi_gnu_123.so.12"};
  EXPECT_THAT(mpi_files(loaded),
              ElementsAre("/usr/lib/libmpi.so.40.30.4", "/usr/lib/libmpich.so.12", "/opt/libmpi_abi.so.1",
                          "/opt/cray/libmpi_cray.so.12", "/opt/cray/libmpi_gnu_123.so.12"));
}

TEST(MpiFind, the_library_beside_the_launcher_comes_first) {
  const std::vector<std::string> ancestors = {"/bin/bash", "/opt/mpi/bin/hydra_pmi_proxy"};
  const auto exists = [](const std::string& file) { return file == "/opt/mpi/bin/../lib/libmpi.so.12"; };
  const auto found = candidates(environment({{"PMI_SIZE", "4"}}), ancestors, exists);
  EXPECT_THAT(found, ElementsAre("/opt/mpi/bin/../lib/libmpi.so.12", "libmpi.so.12", "libmpich.so.12",
                                 "libmpi_abi.so.1", "libmpi_abi.so.0"));
}

TEST(MpiFind, the_launcher_decides_which_library_is_looked_for) {
  const auto nothing = [](const std::string&) { return false; };
  EXPECT_THAT(candidates(environment({{"OMPI_COMM_WORLD_SIZE", "2"}}), {}, nothing),
              ElementsAre("libmpi.so.40", "libmpi_abi.so.1", "libmpi_abi.so.0"));
  EXPECT_THAT(
      candidates(environment({}), {}, nothing),
      ElementsAre("libmpi.so.12", "libmpich.so.12", "libmpi.so.40", "libmpi_abi.so.1", "libmpi_abi.so.0"));
}

TEST(MpiFind, ranks_of_rueda_run_are_told_of_its_option) {
  const auto advice = [](const char* variable) {
    return right_launcher("MPICH 4.0.2", [variable](const char* name) -> const char* {
      return std::string_view(name) == variable ? "2" : nullptr;
    });
  };
  EXPECT_THAT(advice("RUEDA_SIZE"), HasSubstr("rueda run --mpi"));
  EXPECT_THAT(advice("RUEDA_SIZE"), Not(HasSubstr("RUEDA_MPI_LIBRARY")));  // rueda run has no library
  EXPECT_EQ(advice("OMPI_COMM_WORLD_SIZE"),
            "start the ranks with the mpirun of MPICH 4.0.2, or set RUEDA_MPI_LIBRARY to the library of that "
            "launcher");
}

TEST(MpiFind, a_file_that_is_no_mpi_is_refused_by_name) {
  const auto missing = load_library("/nowhere/libmpi.so.40");
  EXPECT_THAT(missing.status().why, HasSubstr("/nowhere/libmpi.so.40 cannot be used"));
  const auto other = load_library("libc.so.6");
  EXPECT_THAT(other.status().why, HasSubstr("has no MPI_Get_library_version"));
  EXPECT_THAT(other.status().why, HasSubstr("RUEDA_MPI_LIBRARY"));
}

TEST(MpiAbi, handles_and_thread_levels_are_distinct_and_complete) {
  for (const Flavor flavor : {Flavor::kStandard, Flavor::kMpich}) {
    const Abi abi = abi_of(flavor);
    std::set<Handle> all = {abi.comm_world, abi.request_null, abi.errors_return};
    all.insert(abi.types.begin(), abi.types.end());
    all.insert(abi.ops.begin(), abi.ops.end());
    EXPECT_EQ(all.size(), 3 + kTypes + kBuiltinOps);
    EXPECT_TRUE(all.insert(0).second) << "a handle is missing";
    EXPECT_TRUE(std::ranges::is_sorted(abi.thread_levels));
  }
}

TEST(MpiReduceFunctions, compute_what_libraries_disagree_about) {
  FakeMpi mpi;
  FakeLibrary library(mpi);
  ReduceOps ops;
  const auto run = [&](ReduceOp op, DType dtype, auto in, auto inout) {
    const size_t known = library.functions.size();
    EXPECT_TRUE(ops.find(library, op, dtype).is_ok());
    EXPECT_EQ(library.functions.size(), known + 1) << "it is a function of ours";
    int count = 1;
    library.functions.back()(&in, &inout, &count, nullptr);
    return inout;
  };
  EXPECT_EQ(run(ReduceOp::kSum, DType::kUint8, uint8_t{200}, uint8_t{100}), 44);  // wraps around
  EXPECT_EQ(run(ReduceOp::kMin, DType::kUint8, uint8_t{200}, uint8_t{100}), 100);
  EXPECT_EQ(run(ReduceOp::kSum, DType::kBfloat16, uint16_t{0x3F80}, uint16_t{0x4000}), 0x4040);  // 1 + 2
  EXPECT_EQ(run(ReduceOp::kSum, DType::kFloat16, uint16_t{0x3C00}, uint16_t{0x4000}), 0x4200);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(run(ReduceOp::kMax, DType::kFloat32, nan, 1.0f)));
  EXPECT_TRUE(std::isnan(run(ReduceOp::kMin, DType::kFloat32, 1.0f, nan)));
}

TEST(MpiReduceFunctions, sums_of_large_elements_are_those_of_the_library) {
  FakeMpi mpi;
  FakeLibrary library(mpi);
  ReduceOps ops;
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kInt32, DType::kInt64})
    EXPECT_EQ(ops.find(library, ReduceOp::kSum, dtype).value().handle,
              library.builtin(BuiltinOp::kSum).handle);
  EXPECT_TRUE(library.functions.empty());
  EXPECT_EQ(ops.find(library, ReduceOp::kMin, DType::kBool).value().handle,
            ops.find(library, ReduceOp::kMin, DType::kBool).value().handle);
  EXPECT_EQ(library.functions.size(), 1u) << "a function is registered once";
}

}  // namespace
}  // namespace rueda::backend::mpi::backend_mpi_find_test
