#include "doctor/mpi.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rueda::doctor::mpi_test {
namespace {

using testing::HasSubstr;

constexpr const char* kMpich = R"({"library": "MPICH 4.0.2", "file": "/lib/libmpich.so.12"})";
constexpr const char* kOpenMpi = R"({"library": "Open MPI 4.1.4", "file": "/lib/libmpi.so.40"})";

Section section_of(const MpiAnswer& here, bool is_wanted, const std::optional<MpiOfRun>& run) {
  Section section{.title = "rueda", .facts = {}, .problems = {}};
  add_mpi(section, here, is_wanted, run);
  return section;
}

TEST(DoctorMpi, two_libraries_that_differ_are_named_in_one_sentence) {
  const Section section = section_of(
      kMpich, false, MpiOfRun{.mpirun = "/bin/mpirun", .output = std::string("a warning\n") + kOpenMpi});
  ASSERT_EQ(section.facts.size(), 2U);
  EXPECT_EQ(section.facts[0].value,
            "MPICH 4.0.2, /lib/libmpich.so.12 (used only with RUEDA_CPU_OPERATIONS=mpi)");
  EXPECT_EQ(section.facts[1].name, "rueda run --mpi");
  EXPECT_EQ(section.facts[1].value, "Open MPI 4.1.4, /lib/libmpi.so.40 (started by /bin/mpirun)");
  ASSERT_EQ(section.problems.size(), 1U);
  EXPECT_FALSE(section.problems[0].is_broken);
  EXPECT_THAT(section.problems[0].sentence, HasSubstr("rueda run --mpi uses Open MPI 4.1.4"));
  EXPECT_THAT(section.problems[0].sentence, HasSubstr("finds MPICH 4.0.2"));
}

TEST(DoctorMpi, equal_libraries_are_no_problem) {
  const Section section = section_of(kOpenMpi, true, MpiOfRun{.mpirun = "/bin/mpirun", .output = kOpenMpi});
  EXPECT_EQ(section.facts.size(), 2U);
  EXPECT_TRUE(section.problems.empty());
  EXPECT_EQ(section_of(kOpenMpi, false, std::nullopt).facts.size(), 1U);
}

TEST(DoctorMpi, an_mpirun_that_starts_nothing_is_named_with_its_words) {
  const auto sentence = [](const MpiOfRun& run) {
    const Section section = section_of(kMpich, false, run);
    return section.problems.size() == 1 && !section.problems[0].is_broken ? section.problems[0].sentence : "";
  };
  EXPECT_THAT(sentence({.mpirun = "/bin/mpirun", .output = "\nno slots\nbye\n"}),
              HasSubstr("mpirun: no slots;"));
  EXPECT_THAT(sentence({.mpirun = "/bin/mpirun", .output = R"({"problem": "no MPI library"})"}),
              HasSubstr("mpirun: no MPI library;"));
  EXPECT_THAT(sentence({.mpirun = "/bin/mpirun", .output = "", .is_in_time = false}),
              HasSubstr("within 20 s"));
  EXPECT_THAT(sentence({.mpirun = "/bin/mpirun"}), HasSubstr("it said nothing"));
}

TEST(DoctorMpi, a_missing_library_is_broken_only_where_it_is_wanted) {
  constexpr const char* kNone = R"({"problem": "no MPI library was found."})";
  EXPECT_TRUE(section_of(kNone, false, std::nullopt).problems.empty());
  ASSERT_EQ(section_of(kNone, true, std::nullopt).problems.size(), 1U);
  EXPECT_TRUE(section_of(kNone, true, std::nullopt).problems[0].is_broken);
  EXPECT_TRUE(section_of("", true, std::nullopt).facts.empty());
}

}  // namespace
}  // namespace rueda::doctor::mpi_test
