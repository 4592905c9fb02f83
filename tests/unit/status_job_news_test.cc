// News of a job on their way from the launcher to the ranks of a host.
#include "rueda/status/job_news.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace rueda::status::job_news_test {
namespace {

const JobNews kNews{.held = {{.rank = 3, .state = ProcessState::kStopped}}, .without_agent = {4, 5}};

class JobNewsFile : public testing::Test {
 protected:
  JobNewsFile() : path_(testing::TempDir() + "/news-" + std::to_string(getpid())) {}
  ~JobNewsFile() override { std::filesystem::remove(path_); }
  const std::string path_;
};

TEST_F(JobNewsFile, is_read_as_it_was_written_and_holds_for_three_seconds) {
  ASSERT_TRUE(write_news(path_, kNews, 100 * kSecond).is_ok());
  const std::optional<DatedNews> read = read_news(path_, 101 * kSecond);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->news, kNews);
  EXPECT_EQ(read->at, 100 * kSecond);
  EXPECT_TRUE(read_news(path_, 103 * kSecond));
  EXPECT_FALSE(read_news(path_, 103 * kSecond + 1));
  ASSERT_TRUE(write_news(path_, {}, 104 * kSecond).is_ok());
  EXPECT_EQ(read_news(path_, 104 * kSecond)->news, JobNews());
}

TEST_F(JobNewsFile, says_nothing_where_it_is_missing_or_broken) {
  EXPECT_FALSE(read_news(path_, 0));
  std::ofstream(path_) << "abc";
  EXPECT_FALSE(read_news(path_, 0));
  std::ofstream(path_) << std::string(8, '\0') << "and more";
  EXPECT_FALSE(read_news(path_, 0));
}

TEST(JobNews, are_refused_unless_they_are_whole_and_about_ranks) {
  const Bytes raw = encode(kNews);
  EXPECT_EQ(decode_job_news(raw).value(), kNews);
  for (size_t size = 0; size < raw.size(); ++size)
    EXPECT_FALSE(decode_job_news(std::span(raw).first(size)).is_ok()) << size;
  EXPECT_FALSE(decode_job_news(encode(JobNews{.held = {{.rank = -1}}, .without_agent = {}})).is_ok());
  EXPECT_FALSE(decode_job_news(encode(JobNews{.held = {}, .without_agent = {-2}})).is_ok());
}

}  // namespace
}  // namespace rueda::status::job_news_test
