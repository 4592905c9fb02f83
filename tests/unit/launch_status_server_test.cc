#include "launch/status_server.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <future>

#include "launch/processes.h"
#include "rueda/status/folder.h"

namespace rueda::launch::status_server_test {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

status::JobAnswer two_hosts() {
  return {
      .release = "x", .launcher = 1, .hosts = {{.host = "a", .ranks = {0, 1}}, {.host = "b", .ranks = {2}}}};
}

TEST(StatusQuery, is_complete_when_every_host_has_answered_and_the_first_word_counts) {
  StatusQuery query(1, two_hosts());
  query.on_answer("a", {{.rank = 0, .pid = 5, .text = "first"}});
  query.on_answer("a", {{.rank = 0, .pid = 5, .text = "second"}});
  query.on_answer("nobody", {});
  EXPECT_FALSE(query.is_complete());
  query.on_missing("b", "gone");
  EXPECT_TRUE(query.is_complete());
  const status::JobAnswer result = std::move(query).result(5);
  EXPECT_EQ(result.hosts[0].processes[0].text, "first");
  EXPECT_EQ(result.hosts[1].missing, "gone");
}

TEST(StatusQuery, hosts_that_have_not_answered_are_named_with_the_time) {
  StatusQuery query(1, two_hosts());
  query.on_answer("b", {});
  const status::JobAnswer result = std::move(query).result(25);
  EXPECT_EQ(result.hosts[0].missing, "its agent did not answer within 25 ms");
  EXPECT_EQ(result.hosts[1].missing, "");
}

TEST(StatusQuery, answers_that_are_too_long_together_are_replaced_by_the_reason) {
  StatusQuery query(1, two_hosts());
  query.on_answer("a", {{.rank = 0, .pid = 5, .text = std::string(40u << 20, 'x')}});
  query.on_answer("b", {{.rank = 2, .pid = 6, .text = std::string(40u << 20, 'x')}});
  const status::JobAnswer result = std::move(query).result(5);
  EXPECT_THAT(result.hosts[0].processes, SizeIs(1));
  EXPECT_THAT(result.hosts[1].processes, SizeIs(0));
  EXPECT_THAT(result.hosts[1].missing, HasSubstr("longer than 64 MiB"));
}

// A launcher's loop with the agent of one host, which the test plays.
class DeskTest : public testing::Test {
 protected:
  DeskTest() {
    std::string pattern = testing::TempDir() + "rueda_status_server_XXXXXX";
    folder_ = std::string(mkdtemp(pattern.data())) + "/rueda";
    std::array<int, 2> ends{};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
    agent_ = UniqueFd(ends[0]);
    AgentProcess process;
    process.pid = 0;
    process.in = UniqueFd(ends[1]);
    process.out = UniqueFd(fcntl(ends[1], F_DUPFD_CLOEXEC, 0));
    links_.emplace_back("b", StartWay::kSsh);
    links_.front().attach(std::move(process));
    status_server_ = std::make_unique<StatusServer>();
    const Status opened = status_server_->open(folder_, {{.host = "b", .ranks = {2, 3}}});
    EXPECT_TRUE(opened.is_ok()) << opened.why;
  }
  ~DeskTest() override { std::filesystem::remove_all(std::filesystem::path(folder_).parent_path()); }

  std::future<Result<status::Reply>> ask(const std::string& request) {
    const std::vector<std::string> sockets = status::sockets_in(folder_, status::kLauncherSocket);
    EXPECT_THAT(sockets, SizeIs(1));
    return std::async(std::launch::async,
                      [=] { return status::ask(sockets.front(), request, 10'000, status::kMaxJobReply); });
  }
  // Turns the loop until the agent is asked, or for the time given.
  std::optional<Question> next_question(Nanos patience = 30 * kSecond) {
    const Deadline deadline = Deadline::after(patience);
    while (!deadline.is_past()) {
      PollSet set;
      status_server_->watch(set, links_);
      std::optional<Question> asked;
      set.watch(agent_.get(), POLLIN, [&] { asked = read_question(); });
      set.wait(Deadline::after(10 * kMillisecond));
      if (asked) return asked;
    }
    return std::nullopt;
  }
  Question read_question() {
    std::array<std::byte, 4096> bytes{};
    const ssize_t size = read(agent_.get(), bytes.data(), bytes.size());
    EXPECT_GT(size, 0);
    reader_.feed(std::span(bytes).first(static_cast<size_t>(std::max<ssize_t>(size, 0))));
    const auto message = reader_.next();
    EXPECT_TRUE(message.is_ok() && message.value() && message.value()->type == MessageType::kAsk);
    const Result<Question> question = decode_question(message.value()->payload);
    EXPECT_TRUE(question.is_ok());
    return question.value();
  }
  void answer(uint32_t id, const std::string& text) {
    ByteWriter writer;
    writer.put(id);
    writer.put_raw(status::encode(std::vector<status::ProcessAnswer>{{.rank = 2, .pid = 9, .text = text}}));
    status_server_->on_answer("b", writer.bytes());
  }
  static status::HostAnswer host_of(std::future<Result<status::Reply>> reply) {
    const Result<status::Reply> bytes = reply.get();
    EXPECT_TRUE(bytes.is_ok()) << bytes.status().why;
    const Result<status::JobAnswer> read = status::decode_job_answer(bytes.value().text);
    EXPECT_TRUE(read.is_ok()) << read.status().why;
    return read.value().hosts.at(0);
  }

  std::string folder_;
  UniqueFd agent_;
  MessageReader reader_;
  std::vector<HostLink> links_;
  std::unique_ptr<StatusServer> status_server_;
};

TEST_F(DeskTest, passes_a_question_on_and_the_answer_back) {
  auto reply = ask("stacks 8000 3");
  const std::optional<Question> asked = next_question();
  ASSERT_TRUE(asked);
  EXPECT_EQ(asked->text.what, "stacks");
  EXPECT_EQ(asked->text.rank, 3);
  EXPECT_LT(asked->text.timeout_ms, 8000);  // the rest is for the way
  answer(asked->id + 1, "of another question");
  answer(asked->id, "mine");
  const status::HostAnswer host = host_of(std::move(reply));
  EXPECT_EQ(host.processes.at(0).text, "mine");
  EXPECT_THAT(host.ranks, testing::ElementsAre(3));
}

TEST_F(DeskTest, an_agent_that_does_not_answer_is_named_in_time_and_a_closed_one_at_once) {
  auto reply = ask("status 500 -1");
  EXPECT_TRUE(next_question());
  EXPECT_EQ(host_of(std::move(reply)).missing, "its agent did not answer within 500 ms");
  links_.front().close("lost");
  agent_.reset();
  reply = ask("status 9000 -1");
  EXPECT_FALSE(next_question(kSecond / 2));
  EXPECT_EQ(host_of(std::move(reply)).missing, "its agent has ended");
}

TEST_F(DeskTest, a_flood_of_questions_reaches_the_agent_seldom) {
  std::vector<std::future<Result<status::Reply>>> replies;
  for (int i = 0; i < 32; ++i) replies.push_back(ask("status 9000 -1"));
  int asked = 0;
  const auto is_open = [](const auto& reply) {
    return reply.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
  };
  while (std::ranges::any_of(replies, is_open)) {
    const std::optional<Question> question = next_question(20 * kMillisecond);
    if (!question) continue;
    answer(question->id, "x");
    ++asked;
  }
  for (auto& reply : replies) EXPECT_EQ(host_of(std::move(reply)).processes.at(0).text, "x");
  EXPECT_LT(asked, 32);  // callers soon after one another are given the same answer
}

TEST_F(DeskTest, what_is_no_question_is_hung_up_on) { EXPECT_EQ(ask("status").get().value().text, ""); }

TEST_F(DeskTest, its_end_leaves_no_socket_and_lets_callers_go) {
  auto reply = ask("status 60000 -1");
  EXPECT_TRUE(next_question());
  status_server_.reset();
  EXPECT_EQ(reply.get().value().text, "");
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST(StatusServer, a_job_without_other_hosts_opens_nothing) {
  StatusServer server;
  EXPECT_TRUE(server.open("/nowhere/at/all", {}).is_ok());
}

}  // namespace
}  // namespace rueda::launch::status_server_test
