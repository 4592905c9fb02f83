// The PMI-1 client against a process manager made of a socket pair and a thread.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <span>
#include <string_view>
#include <thread>
#include <vector>

#include "../soon.h"
#include "rueda/store/launcher_space.h"
#include "rueda/store/socket.h"
#include "rueda/store/world.h"

namespace rueda::store::pmi_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Serves one rank until it hangs up. An empty answer means silence.
class Manager {
 public:
  using Answer = std::function<std::string(const std::string& line)>;

  explicit Manager(Answer answer) : answer_(std::move(answer)) {
    int pair[2] = {-1, -1};
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) return;
    ours_ = UniqueFd(pair[0]);
    setenv("PMI_FD", std::to_string(pair[1]).c_str(), 1);  // the client owns this end
    setenv("PMI_RANK", "0", 1);
    setenv("PMI_SIZE", "2", 1);
    thread_ = std::jthread([this] { serve(); });
  }
  ~Manager() {
    for (const char* name : {"PMI_FD", "PMI_RANK", "PMI_SIZE"}) unsetenv(name);
  }

 private:
  void serve() {
    std::string pending;
    std::byte buffer[256];
    while (true) {
      const Result<size_t> got = receive_some(ours_.get(), buffer, soon());
      if (!got.is_ok()) return;
      pending.append(reinterpret_cast<const char*>(buffer), got.value());
      for (size_t end = 0; (end = pending.find('\n')) != std::string::npos; pending.erase(0, end + 1)) {
        const std::string reply = answer_(pending.substr(0, end));
        if (!send_all(ours_.get(), std::as_bytes(std::span(reply)), soon()).is_ok()) return;
      }
    }
  }

  Answer answer_;
  UniqueFd ours_;
  std::jthread thread_;
};

std::string begin_answers(const std::string& line) {
  if (line.starts_with("cmd=init ")) return "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n";
  if (line == "cmd=get_my_kvsname") return "cmd=my_kvsname kvsname=kvs_7\n";
  if (line == "cmd=finalize") return "cmd=finalize_ack\n";
  return "";
}

TEST(StorePmi, a_rank_puts_fences_gets_and_takes_its_leave) {
  std::map<std::string, std::string> values;
  Manager manager([&](const std::string& line) -> std::string {
    if (line.starts_with("cmd=put kvsname=kvs_7 key=")) {
      const size_t key = line.find("key=") + 4, value = line.find(" value=");
      values[line.substr(key, value - key)] = line.substr(value + 7);
      return "cmd=put_result rc=0 msg=success\n";
    }
    if (line.starts_with("cmd=get kvsname=kvs_7 key="))
      return "cmd=get_result rc=0 msg=success value=" + values[line.substr(26)] + "\n";
    return line == "cmd=barrier_in" ? "cmd=barrier_out\n" : begin_answers(line);
  });
  const auto space = open_pmi_space(soon()).value();
  EXPECT_EQ(space->facts().rank, 0);
  EXPECT_EQ(space->facts().size, 2);
  EXPECT_EQ(space->facts().job, "kvs_7");
  ASSERT_TRUE(space->put("rueda-url", "tcp://[::1]:80", soon()).is_ok());
  ASSERT_TRUE(space->fence(soon()).is_ok());
  EXPECT_EQ(space->get("rueda-url", 0, soon()).value(), "tcp://[::1]:80");
  EXPECT_TRUE(space->finish(soon()).is_ok());
}

TEST(StorePmi, a_space_that_mpi_uses_is_neither_begun_nor_ended) {
  std::vector<std::string> asked;
  {
    Manager manager([&](const std::string& line) -> std::string {
      asked.push_back(line);
      return line == "cmd=barrier_in" ? "cmd=barrier_out\n" : begin_answers(line);
    });
    const auto space = open_pmi_space(soon(), true).value();
    ASSERT_TRUE(space->fence(soon()).is_ok());
    EXPECT_TRUE(space->finish(soon()).is_ok());
    UniqueFd of_mpi(std::atoi(getenv("PMI_FD")));
    constexpr std::string_view kLine = "cmd=barrier_in\n";
    ASSERT_TRUE(send_all(of_mpi.get(), std::as_bytes(std::span(kLine)), soon()).is_ok()) << "it was closed";
    std::byte reply[64];
    EXPECT_TRUE(receive_some(of_mpi.get(), reply, soon()).is_ok());
  }
  EXPECT_EQ(asked, (std::vector<std::string>{"cmd=get_my_kvsname", "cmd=barrier_in", "cmd=barrier_in"}));
}

TEST(StorePmi, replies_in_pieces_and_several_at_once_are_understood) {
  Manager manager([](const std::string& line) -> std::string {
    return line == "cmd=barrier_in" ? "cmd=barrier_out\ncmd=finalize_ack\n" : begin_answers(line);
  });
  const auto space = open_pmi_space(soon()).value();
  EXPECT_TRUE(space->fence(soon()).is_ok());
  EXPECT_TRUE(space->finish(soon()).is_ok());
}

TEST(StorePmi, a_fence_that_a_rank_never_reaches_is_a_timeout) {
  Manager manager(begin_answers);
  const auto space = open_pmi_space(soon()).value();
  const Status status = space->fence(Deadline::after(20 * kMillisecond));
  EXPECT_EQ(status.code, Code::kTimeout);
  EXPECT_THAT(status.why, HasSubstr("barrier_in"));
}

TEST(StorePmi, a_refused_put_is_an_error_that_does_not_show_the_value) {
  Manager manager([](const std::string& line) -> std::string {
    return line.starts_with("cmd=put") ? "cmd=put_result rc=-1 msg=no_room\n" : begin_answers(line);
  });
  const auto space = open_pmi_space(soon()).value();
  const Status status = space->put("rueda-secret", "5ec3e7", soon());
  EXPECT_EQ(status.code, Code::kUnavailable);
  EXPECT_THAT(status.why, AllOf(HasSubstr("rc=-1"), HasSubstr("RUEDA_STORE"), Not(HasSubstr("5ec3e7"))));
}

TEST(StorePmi, a_reply_out_of_turn_or_without_end_is_an_error) {
  for (const std::string& reply : {std::string("cmd=abort\n"), std::string(5000, 'x')}) {
    Manager manager([&](const std::string&) { return reply; });
    EXPECT_EQ(open_pmi_space(soon()).status().code, Code::kUnavailable);
  }
}

TEST(StorePmi, without_a_process_manager_there_is_no_space) {
  EXPECT_EQ(open_pmi_space(soon()).status().code, Code::kUnavailable);
}

TEST(StorePmi, a_descriptor_that_now_belongs_to_something_else_is_left_alone) {
  int ends[2] = {-1, -1};
  ASSERT_EQ(pipe(ends), 0);
  const UniqueFd reading(ends[0]), writing(ends[1]);
  ASSERT_EQ(fcntl(reading.get(), F_SETFL, O_NONBLOCK), 0);
  for (const bool is_shared : {false, true}) {
    setenv("PMI_FD", std::to_string(writing.get()).c_str(), 1);
    const Status status = open_pmi_space(soon(), is_shared).status();
    unsetenv("PMI_FD");
    EXPECT_EQ(status.code, Code::kUnavailable);
    EXPECT_THAT(status.why, AllOf(HasSubstr("PMI_FD="), HasSubstr("RUEDA_STORE")));
  }
  EXPECT_NE(fcntl(writing.get(), F_GETFD), -1) << "it was closed";
  char byte = 0;
  EXPECT_EQ(read(reading.get(), &byte, 1), -1) << "something was written to it";
}

TEST(StorePmi, the_job_is_named_after_the_space) {
  Manager manager(begin_answers);
  const World found = detect_world(std::getenv).value();
  EXPECT_EQ(found.method, World::Method::kPmi);
  const World world = complete_world(found, soon()).value();
  EXPECT_EQ(world.job, "mpich-kvs_7");
  EXPECT_TRUE(world.space->finish(soon()).is_ok());
}

TEST(StorePmix, without_a_server_there_is_no_space) {
  EXPECT_EQ(open_pmix_space().status().code, Code::kUnavailable);
}

}  // namespace
}  // namespace rueda::store::pmi_test
