// Runs of jobs in a directory that outlives them.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <string>
#include <thread>

#include "../soon.h"
#include "rueda/base/process.h"
#include "rueda/store/file_run.h"

namespace rueda::store::file_run_test {
namespace {

class StoreFileRun : public testing::Test {
 protected:
  StoreFileRun() {
    std::string pattern = (std::filesystem::temp_directory_path() / "rueda-file-run-XXXXXX").string();
    root_ = mkdtemp(pattern.data());
  }
  ~StoreFileRun() override { std::filesystem::remove_all(root_); }

  static Deadline short_wait() { return Deadline::after(100 * kMillisecond); }

  std::string root_;
  const std::string job_ = "file-run-test";
};

TEST_F(StoreFileRun, a_run_that_is_over_is_not_joined_and_is_swept_away) {
  const std::string dir = root_ + "/shared";
  {
    FileRun first = begin_file_run(dir, job_, soon()).value();
    ASSERT_TRUE(first.store->set("key", "stale", soon()).is_ok());
    EXPECT_EQ(join_file_run(dir, job_, soon()).value().store->get("key", soon()).value(), "stale");
  }
  EXPECT_EQ(join_file_run(dir, job_, short_wait()).status().code, Code::kTimeout);
  const FileRun second = begin_file_run(dir, job_, soon()).value();
  const FileRun joined = join_file_run(dir, job_, soon()).value();
  EXPECT_EQ(joined.store->try_get("key", soon()).status().code, Code::kUnavailable);
  int runs = 0;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) runs += entry.is_directory();
  EXPECT_EQ(runs, 1);
}

TEST_F(StoreFileRun, a_rank_that_comes_when_rank_0_has_failed_and_ended_fails_with_its_cause) {
  const std::string dir = root_ + "/shared";
  std::filesystem::path record;
  {
    const FileRun run = begin_file_run(dir, job_, soon()).value();
    note_failed_run(run.lease, "rank 0: the first cause");
    note_failed_run(run.lease, "rank 0: the cause");
    EXPECT_TRUE(join_file_run(dir, job_, soon()).is_ok()) << "rank 0 is there and may try again";
    forget_failed_run(run.lease);
    note_failed_run(run.lease, "rank 0: the last cause");
    record = run.lease.dir + "/failed";
  }
  const Status failed = join_file_run(dir, job_, soon()).status();
  EXPECT_EQ(failed.code, Code::kUnavailable);
  EXPECT_EQ(failed.why, "another rank could not initialize: rank 0: the last cause");
  EXPECT_EQ(join_file_run(dir, "other", short_wait()).status().code, Code::kTimeout);
  // Shortly before this process began: this is its cause too, unless another rank 0 comes.
  const auto shortly_before = std::filesystem::file_time_type::clock::now() -
                              std::chrono::nanoseconds(process_age()) - std::chrono::seconds(5);
  std::filesystem::last_write_time(record, shortly_before);
  EXPECT_EQ(join_file_run(dir, job_, short_wait()).status().why, failed.why);
  // Written before this process began, so by a rank 0 of another day.
  const auto a_year_ago = std::filesystem::file_time_type::clock::now() - std::chrono::hours(24 * 365);
  std::filesystem::last_write_time(record, a_year_ago);
  EXPECT_EQ(join_file_run(dir, job_, short_wait()).status().code, Code::kTimeout);
  std::filesystem::last_write_time(record, shortly_before);
  std::future<bool> joined =
      std::async(std::launch::async, [&] { return join_file_run(dir, job_, soon()).is_ok(); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const FileRun next = begin_file_run(dir, job_, soon()).value();
  EXPECT_TRUE(joined.get());
}

TEST_F(StoreFileRun, a_run_that_ends_takes_its_directory_with_it_and_no_other) {
  const std::string dir = root_ + "/shared";
  FileRun mine = begin_file_run(dir, "mine", soon()).value();
  const FileRun other = begin_file_run(dir, "other", soon()).value();
  FileRun joined = join_file_run(dir, "mine", soon()).value();
  ASSERT_TRUE(joined.store->set("key", "value", soon()).is_ok());
  end_file_run(joined.lease);  // it has none
  EXPECT_TRUE(mine.store->try_get("key", soon()).is_ok());
  end_file_run(mine.lease);
  int runs = 0;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) runs += entry.is_directory();
  EXPECT_EQ(runs, 1);
  EXPECT_TRUE(other.store->set("key", "value", soon()).is_ok());
}

TEST_F(StoreFileRun, jobs_that_share_a_directory_do_not_meet) {
  const FileRun mine = begin_file_run(root_ + "/shared", "mine", soon()).value();
  const FileRun other = begin_file_run(root_ + "/shared", "other", soon()).value();
  ASSERT_TRUE(mine.store->set("key", "mine", soon()).is_ok());
  EXPECT_EQ(other.store->try_get("key", soon()).status().code, Code::kUnavailable);
  EXPECT_TRUE(join_file_run(root_ + "/shared", "mine", soon()).value().store->try_get("key", soon()).is_ok());
}

}  // namespace
}  // namespace rueda::store::file_run_test
