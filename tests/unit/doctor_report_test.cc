#include "doctor/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "doctor/front_ends.h"

namespace rueda::doctor::report_test {
namespace {

using testing::HasSubstr;

Section section_with(const char* title) { return {.title = title, .facts = {}, .problems = {}}; }

TEST(DoctorReport, advice_is_not_broken) {
  Report report = {section_with("memory")};
  EXPECT_FALSE(is_broken(report));
  EXPECT_THAT(page(report), HasSubstr("No problem found."));
  report[0].advise("more would be better");
  EXPECT_FALSE(is_broken(report));
  EXPECT_THAT(page(report), HasSubstr("advice: more would be better\n"));
  report[0].fail("there is none; get some");
  EXPECT_TRUE(is_broken(report));
  EXPECT_THAT(page(report), HasSubstr("BROKEN: there is none; get some\n"));
  EXPECT_THAT(page(report), HasSubstr("1 broken, 1 advice."));
}

TEST(DoctorReport, json_holds_every_fact_and_problem_whatever_bytes_they_are) {
  Report report = {section_with("network"), section_with("python")};
  report[0].add("eth0", "10.0.0.1");
  report[0].add("odd", "\xff");
  report[1].fail("no");
  const auto read = nlohmann::json::parse(json(report));
  EXPECT_EQ(read["facts"]["network"]["eth0"], "10.0.0.1");
  EXPECT_TRUE(read["facts"]["python"].empty());
  ASSERT_EQ(read["problems"].size(), 1U);
  EXPECT_EQ(read["problems"][0]["section"], "python");
  EXPECT_EQ(read["problems"][0]["sentence"], "no");
  EXPECT_EQ(read["is_broken"], true);
}

TEST(DoctorReport, sizes_are_read_by_people) {
  EXPECT_EQ(bytes_text(512), "512 B");
  EXPECT_EQ(bytes_text(64 << 20), "64.0 MiB");
  EXPECT_EQ(bytes_text(3ULL << 40), "3.0 TiB");
}

Section told(const Answer& answer) {
  Section section = section_with("python");
  add_answer(section, answer);
  return section;
}

TEST(DoctorFrontEnds, the_last_line_is_the_answer) {
  const Section section = told({.framework = "torch",
                                .text = "a warning\n{\"facts\": {\"torch\": \"2\"}, \"broken\": [\"b; do\"], "
                                        "\"advice\": [\"a\"]}\n",
                                .is_in_time = true,
                                .exit_status = 0});
  ASSERT_EQ(section.facts.size(), 1U);
  EXPECT_EQ(section.facts[0].value, "2");
  ASSERT_EQ(section.problems.size(), 2U);
  EXPECT_TRUE(section.problems[0].is_broken);
  EXPECT_FALSE(section.problems[1].is_broken);
}

TEST(DoctorFrontEnds, a_child_that_dies_hangs_or_babbles_is_broken) {
  const Section died = told({.framework = "jax", .text = "", .is_in_time = true, .exit_status = -11});
  EXPECT_THAT(died.problems.at(0).sentence, HasSubstr("ended with signal 11 (no output)"));
  const Section late = told({.framework = "jax", .text = "", .is_in_time = false, .exit_status = -9});
  EXPECT_THAT(late.problems.at(0).sentence, HasSubstr("did not answer within 60 s"));
  const Section odd = told({.framework = "jax", .text = "hello\n", .is_in_time = true, .exit_status = 0});
  EXPECT_THAT(odd.problems.at(0).sentence, HasSubstr("(hello); run `python -m rueda.doctor jax`"));
  for (const Section& section : {died, late, odd}) EXPECT_TRUE(section.problems.at(0).is_broken);
}

}  // namespace
}  // namespace rueda::doctor::report_test
