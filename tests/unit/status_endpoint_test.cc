#include "rueda/status/endpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "rueda/status/folder.h"
#include "rueda/status/textfile.h"

namespace rueda::status::endpoint_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int kPatience_ms = 30'000;

class EndpointTest : public testing::Test {
 protected:
  EndpointTest() {
    std::string pattern = testing::TempDir() + "rueda_status_XXXXXX";
    base_ = mkdtemp(pattern.data());
    folder_ = base_ + "/rueda";
  }
  ~EndpointTest() override { std::filesystem::remove_all(base_); }
  std::unique_ptr<Endpoint> start(Endpoint::Answer answer) {
    auto started = Endpoint::start(folder_, std::move(answer), {});
    EXPECT_TRUE(started.is_ok()) << started.status().why;
    return std::move(started).value();
  }
  std::string base_, folder_;
};

std::string echo(const std::string& request) { return "<" + request + ">"; }

TEST_F(EndpointTest, answers_each_request_and_removes_its_socket_at_the_end) {
  auto endpoint = start(echo);
  ASSERT_THAT(sockets_in(folder_), ElementsAre(endpoint->path()));
  for (const char* what : {"status", "stacks"}) {
    const Result<Reply> answer = ask(endpoint->path(), what, kPatience_ms);
    ASSERT_TRUE(answer.is_ok()) << answer.status().why;
    EXPECT_EQ(answer.value().text, "<" + std::string(what) + ">");
  }
  endpoint.reset();
  EXPECT_THAT(sockets_in(folder_), IsEmpty());
}

TEST_F(EndpointTest, an_answer_may_be_larger_than_the_socket_takes_at_once) {
  const auto endpoint = start([](const std::string&) { return std::string(8 << 20, 'x'); });
  const Result<Reply> answer = ask(endpoint->path(), "status", kPatience_ms);
  ASSERT_TRUE(answer.is_ok());
  EXPECT_EQ(answer.value().text.size(), size_t{8} << 20);
}

TEST_F(EndpointTest, a_request_that_is_too_long_gets_no_answer) {
  const auto endpoint = start(echo);
  const Result<Reply> answer = ask(endpoint->path(), std::string(kMaxRequest, 'x'), kPatience_ms);
  EXPECT_FALSE(answer.is_ok() && !answer.value().text.empty());
  EXPECT_EQ(ask(endpoint->path(), "status", kPatience_ms).value().text, "<status>");  // and harms nobody else
}

TEST(Folders, of_a_login_session_and_of_processes_outside_it_are_both_looked_in) {
  const char* const given = std::getenv("XDG_RUNTIME_DIR");
  const std::string before = given == nullptr ? "" : given;
  const std::string session = "/run/user/" + std::to_string(geteuid());
  const std::string of_session = session + "/rueda", outside = "/tmp/rueda-" + std::to_string(geteuid());
  unsetenv("XDG_RUNTIME_DIR");
  EXPECT_THAT(folders(), ElementsAre(outside, of_session));
  setenv("XDG_RUNTIME_DIR", session.c_str(), 1);
  EXPECT_THAT(folders(), ElementsAre(of_session, outside));
  setenv("XDG_RUNTIME_DIR", "/elsewhere", 1);
  EXPECT_THAT(folders(), ElementsAre("/elsewhere/rueda")) << "somebody has chosen it";
  given == nullptr ? unsetenv("XDG_RUNTIME_DIR") : setenv("XDG_RUNTIME_DIR", before.c_str(), 1);
}

TEST_F(EndpointTest, other_users_can_enter_neither_the_folder_nor_the_socket) {
  const auto endpoint = start(echo);
  struct stat about {};
  ASSERT_EQ(stat(folder_.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777u, 0700u);
  ASSERT_EQ(stat(endpoint->path().c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777u, 0600u);
}

TEST_F(EndpointTest, a_folder_that_others_may_enter_or_a_link_is_refused) {
  std::filesystem::create_directory(folder_);
  chmod(folder_.c_str(), 0755);
  EXPECT_THAT(Endpoint::start(folder_, echo, {}).status().why, HasSubstr("only this user may enter"));
  const std::string link = base_ + "/link";
  std::filesystem::create_directory_symlink(base_, link);
  EXPECT_FALSE(make_folder(link).is_ok());
}

TEST_F(EndpointTest, a_path_that_is_too_long_is_refused_with_the_remedy) {
  const auto refused = Endpoint::start(base_ + "/" + std::string(100, 'x'), echo, {});
  EXPECT_THAT(refused.status().why, HasSubstr("XDG_RUNTIME_DIR"));
}

TEST_F(EndpointTest, the_socket_of_a_killed_process_is_removed) {
  ASSERT_TRUE(make_folder(folder_).is_ok());
  const pid_t child = fork();
  if (child == 0) {
    const auto started = Endpoint::start(folder_, echo, {});
    raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_FALSE(std::filesystem::is_empty(folder_));
  EXPECT_THAT(sockets_in(folder_), IsEmpty());
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(EndpointTest, whoever_ends_takes_along_the_sockets_of_those_that_were_killed) {
  auto mine = start(echo), other = start(echo);
  const pid_t child = fork();
  if (child == 0) {
    const auto rank = Endpoint::start(folder_, echo, {});
    const auto launcher = Endpoint::start(folder_, echo, {}, kLauncherSocket);
    raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  mine.reset();
  const std::filesystem::directory_iterator left(folder_);
  EXPECT_EQ(left->path(), other->path());
  EXPECT_EQ(std::distance(begin(left), end(left)), 1);
}

TEST_F(EndpointTest, a_forked_child_does_not_keep_the_socket) {
  auto endpoint = start(echo);
  int ends[2] = {-1, -1}, begun[2] = {-1, -1};
  ASSERT_EQ(pipe(ends), 0);
  ASSERT_EQ(pipe(begun), 0);
  const pid_t child = fork();
  if (child == 0) {
    close(ends[1]);
    char byte = 0;
    [[maybe_unused]] const ssize_t told = write(begun[1], &byte, 1);
    [[maybe_unused]] const ssize_t got = read(ends[0], &byte, 1);  // until the parent has looked
    _exit(0);
  }
  close(ends[0]);
  char byte = 0;
  ASSERT_EQ(read(begun[0], &byte, 1), 1);  // fork() returns here before the child has closed its copy
  close(begun[0]);
  close(begun[1]);
  const std::string path = endpoint->path(), kept = path + ".kept";
  std::filesystem::create_hard_link(path, kept);  // what a crash would leave
  endpoint.reset();
  EXPECT_EQ(ask(kept, "status", kPatience_ms).status().code, Code::kPeerLost);
  close(ends[1]);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
}

TEST_F(EndpointTest, calls_functions_on_its_own_thread) {
  auto endpoint = start(echo);
  std::promise<std::thread::id> called;
  endpoint->call_soon([&] { called.set_value(std::this_thread::get_id()); });
  std::future<std::thread::id> where = called.get_future();
  ASSERT_EQ(where.wait_for(std::chrono::milliseconds(kPatience_ms)), std::future_status::ready);
  EXPECT_NE(where.get(), std::this_thread::get_id());
}

TEST_F(EndpointTest, ticks_without_a_socket_where_nobody_may_ask) {
  std::promise<void> ticked;
  bool is_first = true;
  const auto endpoint = Endpoint::start("", echo, [&] {
    if (std::exchange(is_first, false)) ticked.set_value();
  });
  ASSERT_TRUE(endpoint.is_ok());
  EXPECT_EQ(ticked.get_future().wait_for(std::chrono::seconds(30)), std::future_status::ready);
}

TEST_F(EndpointTest, a_process_that_does_not_answer_is_reported_after_the_time_given) {
  std::promise<void> leave;
  std::shared_future<void> left = leave.get_future().share();
  auto endpoint = start([left](const std::string&) {
    left.wait();
    return std::string("late");
  });
  EXPECT_THAT(ask(endpoint->path(), "status", 200).status().why, HasSubstr("did not answer within 200 ms"));
  leave.set_value();
}

TEST(Textfile, each_rank_has_a_file_with_the_ending_that_the_collector_reads) {
  EXPECT_EQ(textfile_path("/m/rueda", 3), "/m/rueda.rank3.prom");
  EXPECT_EQ(textfile_path("/m/rueda.prom", 3), "/m/rueda.rank3.prom");
}

TEST_F(EndpointTest, a_metrics_file_is_replaced_as_a_whole) {
  write_textfile(base_ + "/m", 0, "one\n");
  write_textfile(base_ + "/m", 0, "two\n");
  std::ifstream file(base_ + "/m.rank0.prom");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "two\n");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(base_), {}), 1);
}

}  // namespace
}  // namespace rueda::status::endpoint_test
