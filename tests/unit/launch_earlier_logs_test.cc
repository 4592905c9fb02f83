#include "launch/earlier_logs.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

namespace rueda::launch::earlier_logs_test {
namespace {

namespace fs = std::filesystem;

class EarlierLogs : public testing::Test {
 protected:
  EarlierLogs() {
    std::string path = fs::temp_directory_path() / "rueda-earlier-XXXXXX";
    folder_ = mkdtemp(path.data());
  }
  ~EarlierLogs() override { fs::permissions(folder_, fs::perms::owner_all), fs::remove_all(folder_); }
  EarlierLogs(const EarlierLogs&) = delete;
  EarlierLogs& operator=(const EarlierLogs&) = delete;

  void write(const std::string& name, const std::string& text) { std::ofstream(folder_ / name) << text; }
  std::string read(const std::string& name) {
    std::ifstream file(folder_ / name);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::set<std::string> names(const std::string& below = "") {
    std::set<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder_ / below)) found.insert(entry.path().filename());
    return found;
  }

  fs::path folder_;
};

TEST(LogName, is_that_of_a_rank_and_of_nothing_else) {
  for (const char* name : {"rank-0000.out", "rank-0003.err", "rank-12345.out", "rank-0000.prom"})
    EXPECT_TRUE(is_log_name(name)) << name;
  for (const char* name : {"rank-0.out", "rank-.out", "rank-00x0.out", "rank-0000.txt", "rank-0000.out.gz",
                           "my-rank-0000.out", "checkpoint-0.pt", ".out", "rank-.err", ""})
    EXPECT_FALSE(is_log_name(name)) << name;
}

TEST_F(EarlierLogs, of_a_job_that_still_runs_are_not_moved) {
  const std::string folder = folder_ / "new" / "logs";
  {
    const Result<UniqueFd> first = hold_log_folder(folder);
    ASSERT_TRUE(first.is_ok() && first.value().is_open());
    EXPECT_EQ(hold_log_folder(folder).status().why,
              "another job is writing its logs to " + folder + "; name another folder");
  }
  EXPECT_TRUE(hold_log_folder(folder).is_ok());
  write("file", "");
  const Result<UniqueFd> none = hold_log_folder(folder_ / "file");
  EXPECT_TRUE(none.is_ok() && !none.value().is_open());
}

TEST_F(EarlierLogs, go_to_a_folder_of_their_own_with_their_text) {
  for (const char* name : {"rank-0000.out", "rank-0003.err", "checkpoint-0.pt"}) write(name, name);
  Result<std::string> moved = set_aside_logs(folder_);
  ASSERT_TRUE(moved.is_ok()) << moved.status().why;
  EXPECT_EQ(moved.value(), folder_ / "earlier-1");
  EXPECT_EQ(names(), (std::set<std::string>{"checkpoint-0.pt", "earlier-1"}));
  EXPECT_EQ(read("earlier-1/rank-0003.err"), "rank-0003.err");

  write("rank-0000.out", "second");
  ASSERT_EQ(set_aside_logs(folder_).value(), folder_ / "earlier-2");
  EXPECT_EQ(read("earlier-1/rank-0000.out"), "rank-0000.out");
  EXPECT_EQ(read("earlier-2/rank-0000.out"), "second");
}

TEST_F(EarlierLogs, are_not_there_in_a_new_folder_or_none) {
  write("train.py", "");
  EXPECT_EQ(set_aside_logs(folder_).value(), "");
  EXPECT_EQ(set_aside_logs(folder_ / "new").value(), "");
  EXPECT_EQ(names(), std::set<std::string>{"train.py"});
}

TEST_F(EarlierLogs, that_are_links_stay) {
  fs::create_symlink("/dev/null", folder_ / "rank-0000.out");
  fs::create_directory(folder_ / "rank-0001.out");
  EXPECT_EQ(set_aside_logs(folder_).value(), "");
  EXPECT_EQ(names(), (std::set<std::string>{"rank-0000.out", "rank-0001.out"}));
}

TEST_F(EarlierLogs, take_the_next_number_that_is_free) {
  write("rank-0000.out", "");
  write("earlier-1", "a file of the user");
  EXPECT_EQ(set_aside_logs(folder_).value(), folder_ / "earlier-2");
  EXPECT_EQ(read("earlier-1"), "a file of the user");
}

TEST_F(EarlierLogs, that_cannot_be_moved_are_named) {
  write("rank-0000.out", "precious");
  chmod(folder_.c_str(), 0555);
  const bool is_root = geteuid() == 0;  // who may write everywhere
  if (is_root && seteuid(65534) != 0) GTEST_SKIP() << "there is no other user here";
  const Result<std::string> moved = set_aside_logs(folder_);
  ASSERT_EQ(is_root ? seteuid(0) : 0, 0);
  ASSERT_FALSE(moved.is_ok());
  EXPECT_EQ(moved.status().why, "cannot move the logs of an earlier job from " + folder_.string() + " to " +
                                    (folder_ / "earlier-1").string() +
                                    ": Permission denied; name another folder");
  EXPECT_EQ(read("rank-0000.out"), "precious");
}

TEST_F(EarlierLogs, in_a_folder_that_cannot_be_listed_are_not_overwritten) {
  write("rank-0000.out", "precious");
  chmod(folder_.c_str(), 0333);
  const bool is_root = geteuid() == 0;
  if (is_root && seteuid(65534) != 0) GTEST_SKIP() << "there is no other user here";
  const Result<std::string> moved = set_aside_logs(folder_);
  ASSERT_EQ(is_root ? seteuid(0) : 0, 0);
  EXPECT_EQ(moved.status().why, "cannot look for the logs of an earlier job in " + folder_.string() +
                                    ": Permission denied; name another folder");
}

}  // namespace
}  // namespace rueda::launch::earlier_logs_test
