// Which step of each rank is the first.
#include "timeline/division.h"

#include <gtest/gtest.h>

#include "timeline/job.h"

namespace rueda::timeline::division_test {
namespace {

RankFile rank_with(int64_t marks, Nanos first, Nanos last) {
  RankFile file;
  file.steps.marks = marks;
  file.steps.first_mark = first;
  file.steps.last_mark = last;
  return file;
}

TEST(Division, ranks_that_record_a_minute_begin_with_the_step_that_all_have) {
  Job job;
  job.ranks = {rank_with(6, 1'000, 1'500), rank_with(5, 1'102, 1'501)};
  const Nanos from = division_of(job).from;
  EXPECT_GT(from, 1'000);
  EXPECT_LE(from, 1'100) << "the second mark of the first rank";
}

TEST(Division, as_many_marks_on_all_ranks_are_of_the_same_steps_however_late_the_first_is) {
  Job job;
  job.ranks = {rank_with(6, 1'000, 1'500), rank_with(6, 1'070, 1'502)};
  EXPECT_LE(division_of(job).from, 1'000);
}

TEST(Division, as_many_marks_that_are_all_a_step_later_are_not) {
  Job job;
  job.ranks = {rank_with(6, 1'000, 1'500), rank_with(6, 1'098, 1'602)};
  EXPECT_GT(division_of(job).from, 1'000);
}

}  // namespace
}  // namespace rueda::timeline::division_test
