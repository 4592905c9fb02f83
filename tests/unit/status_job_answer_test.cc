#include "rueda/status/job_answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rueda/base/release.h"

namespace rueda::status::job_answer_test {
namespace {

using testing::HasSubstr;

JobAnswer answer() {
  JobAnswer one{.release = kRelease, .launcher = 7, .hosts = {}};
  one.hosts.push_back(
      {.host = "a", .ranks = {0, 1}, .processes = {{.rank = 0, .pid = 5, .text = std::string("{\0}", 3)}}});
  one.hosts.push_back({.host = "b", .ranks = {2}, .missing = "gone"});
  return one;
}

TEST(JobQuestion, comes_back_as_it_was_written) {
  const JobQuestion question{.what = "stacks", .timeout_ms = 1500, .rank = 3};
  EXPECT_EQ(parse_question(format_question(question)), question);
  EXPECT_EQ(parse_question("record 5 -1")->what, "record");
}

TEST(JobQuestion, what_is_none_is_refused) {
  for (const char* text : {"", "status", "status 5", "metrics 5 -1", "status 0 -1", "status 5 -2",
                           "status 5 0 1", "status 99999999 -1", "status x 0", "stacks 5 -1\r"})
    EXPECT_FALSE(parse_question(text)) << text;
}

TEST(JobAnswer, comes_back_as_it_was_written) {
  const Result<JobAnswer> read = decode_job_answer(encode(answer()));
  ASSERT_TRUE(read.is_ok()) << read.status().why;
  EXPECT_EQ(read.value().launcher, 7);
  EXPECT_EQ(read.value().hosts[0].processes[0].text, std::string("{\0}", 3));
  EXPECT_EQ(read.value().hosts[1].missing, "gone");
  EXPECT_EQ(encode(read.value()), encode(answer()));
}

TEST(JobAnswer, every_part_of_one_and_a_longer_one_are_refused) {
  const std::string whole = encode(answer());
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_FALSE(decode_job_answer(whole.substr(0, size)).is_ok()) << size;
  EXPECT_FALSE(decode_job_answer(whole + "x").is_ok());
}

TEST(JobAnswer, a_launcher_of_another_release_is_named) {
  JobAnswer other = answer();
  other.release = "9.9";
  EXPECT_THAT(decode_job_answer(encode(other)).status().why, HasSubstr("release 9.9"));
}

}  // namespace
}  // namespace rueda::status::job_answer_test
