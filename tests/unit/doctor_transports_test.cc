#include "doctor/transports.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rueda::doctor::transports_test {
namespace {

using testing::HasSubstr;

Section section_of(const Trial& trial) {
  Section section{.title = "transports", .facts = {}, .problems = {}};
  add_trial(section, trial);
  return section;
}

constexpr const char* kRight = R"({"results": [{"correct": true, "median_us": 8.0},
                                               {"correct": true, "busbw_gbps": 3.5}]})";

TEST(DoctorTransports, right_bytes_are_a_fact_with_their_times) {
  const Section section = section_of({.transport = "tcp", .output = "", .json = kRight, .is_in_time = true});
  ASSERT_EQ(section.facts.size(), 1U);
  EXPECT_EQ(section.facts[0].value, "works; small exchange 8.00 us, 4 MiB at 3.5 GB/s");
  EXPECT_TRUE(section.problems.empty());
}

TEST(DoctorTransports, the_results_come_last_in_what_the_ranks_write) {
  const std::string results = "{\n \"results\": [\n  {\n   \"correct\": true\n  }\n ]\n}";
  const Trial trial = trial_of("tcp", "a table\n" + results + "\nthe launcher's news\n", true);
  EXPECT_EQ(trial.json, results);
  EXPECT_EQ(trial.output, "a table\nthe launcher's news\n");
  const Trial failed = trial_of("tcp", "rank 0 says no\n", false);
  EXPECT_EQ(failed.json, "");
  EXPECT_EQ(failed.output, "rank 0 says no\n");
}

TEST(DoctorTransports, shared_memory_that_is_missing_is_left_out_unless_nothing_else_is_allowed) {
  EXPECT_EQ(usable_transports("shm,tcp", "it is forbidden."), "tcp");
  EXPECT_EQ(usable_transports("shm,ucx,tcp", "it is forbidden."), "ucx,tcp");
  EXPECT_EQ(usable_transports("shm,tcp", ""), "shm,tcp");
  EXPECT_EQ(usable_transports("tcp", "it is forbidden."), "tcp");
  EXPECT_EQ(usable_transports("shm", "it is forbidden."), "shm") << "no job can run";
}

TEST(DoctorTransports, whatever_else_happens_is_a_problem_with_its_reason) {
  std::string wrong = kRight;
  wrong.replace(wrong.rfind("true"), 4, "false");
  const auto sentence = [](const Trial& trial) {
    const Section section = section_of(trial);
    return section.problems.size() == 1 && section.problems[0].is_broken ? section.problems[0].sentence : "";
  };
  EXPECT_THAT(sentence({.transport = "tcp", .output = "", .json = wrong, .is_in_time = true}),
              HasSubstr("other bytes arrived"));
  EXPECT_THAT(sentence({.transport = "ucx", .output = "a\nno libucp\n", .json = "", .is_in_time = true}),
              HasSubstr("over ucx: no libucp;"));
  const std::string news = "rueda bench: no card.\nrueda: the job failed\n  exit status 1\n";
  for (const char* const before : {"", "a table\n"})
    EXPECT_THAT(sentence({.transport = "ucx", .output = before + news, .json = "", .is_in_time = true}),
                HasSubstr("over ucx: no card;"));
  EXPECT_THAT(sentence({.transport = "shm", .output = "", .json = "[1]", .is_in_time = true}),
              HasSubstr("they said nothing"));
  EXPECT_THAT(sentence({.transport = "shm", .output = "", .json = kRight, .is_in_time = false}),
              HasSubstr("did not end within 30 s"));
}

}  // namespace
}  // namespace rueda::doctor::transports_test
