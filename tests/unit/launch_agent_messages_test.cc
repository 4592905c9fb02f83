#include "launch/agent_messages.h"

#include <gmock/gmock.h>

#include <random>

#include "rueda/base/limits.h"

namespace rueda::launch::agent_messages_test {
namespace {

using ::testing::ElementsAre;

Job some_job() {
  Job job{.argv = {"python", "-c", "print('\xff')"}, .cwd = "/tmp", .secret = "abcd", .stage = "data"};
  job.env = {{"A", "1"}, {"B", std::string("\x00\xfe", 2)}};
  job.ranks = {{0, {{"RANK", "0"}}}, {1, {{"RANK", "1"}}}};
  job.ping_timeout_ms = 7;
  job.grace_ms = 20'000;
  job.binds_cores = true;
  job.collects_metrics = true;
  return job;
}

std::vector<MessageType> types_of(MessageReader& reader) {
  std::vector<MessageType> types;
  while (true) {
    Result<std::optional<AgentMessage>> message = reader.next();
    EXPECT_TRUE(message.is_ok()) << message.status().why;
    if (!message.is_ok() || !message.value()) return types;
    types.push_back(message.value()->type);
  }
}

TEST(AgentMessages, job_survives_the_wire_with_bytes_that_are_no_utf8) {
  const Job sent = some_job();
  const Result<Job> got = decode_job(encode(sent));
  ASSERT_TRUE(got.is_ok()) << got.status().why;
  EXPECT_EQ(got.value().argv, sent.argv);
  EXPECT_EQ(got.value().env, sent.env);
  EXPECT_EQ(got.value().ranks[1].env, sent.ranks[1].env);
  EXPECT_EQ(got.value().secret, "abcd");
  EXPECT_EQ(got.value().stage, "data");
  EXPECT_EQ(got.value().ping_timeout_ms, 7);
  EXPECT_EQ(got.value().grace_ms, 20'000);
  EXPECT_TRUE(got.value().binds_cores);
  EXPECT_TRUE(got.value().collects_metrics);
}

TEST(AgentMessages, job_cut_short_or_with_more_behind_it_is_refused) {
  const Bytes whole = encode(some_job());
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_FALSE(decode_job(std::span(whole).first(size)).is_ok()) << size;
  Bytes longer = whole;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(decode_job(longer).is_ok());
}

TEST(AgentMessages, garbage_never_crashes_a_decoder) {
  std::mt19937 random(11);
  const Bytes whole = encode(some_job());
  for (int round = 0; round < 20'000; ++round) {
    Bytes broken = whole;
    for (int flips = 0; flips < 4; ++flips)
      broken[random() % broken.size()] = static_cast<std::byte>(random());
    static_cast<void>(decode_job(broken).is_ok());
    static_cast<void>(decode_exit(broken).is_ok());
    static_cast<void>(decode_hello(broken).is_ok());
    static_cast<void>(decode_rank_job(broken).is_ok());
    static_cast<void>(decode_view_change(broken).is_ok());
    static_cast<void>(decode_board_report(broken).is_ok());
  }
}

TEST(AgentMessages, exit_and_hello_survive_the_wire) {
  Exit exit;
  exit.rank = 3;
  exit.signal = 9;
  exit.at = 1'234'567'890'123;
  exit.was_out_of_memory = 1;
  exit.trouble = "no";
  const Result<Exit> got = decode_exit(encode(exit));
  ASSERT_TRUE(got.is_ok());
  EXPECT_EQ(got.value().signal, 9);
  EXPECT_EQ(got.value().at, 1'234'567'890'123);
  EXPECT_EQ(got.value().was_out_of_memory, 1);
  EXPECT_EQ(got.value().trouble, "no");
  const Result<Hello> hello =
      decode_hello(encode(Hello{.release = "1", .host = "h", .launcher_address = "a", .own_address = "b"}));
  ASSERT_TRUE(hello.is_ok());
  EXPECT_EQ(hello.value().launcher_address, "a");
  EXPECT_EQ(hello.value().own_address, "b");
}

TEST(AgentMessages, those_of_elastic_jobs_survive_the_wire) {
  Job job{.argv = {"true"}, .cwd = "/", .secret = {}, .stage = {}};
  EXPECT_FALSE(decode_job(encode(job)).is_ok()) << "nothing to start";
  job.is_elastic = true;
  EXPECT_TRUE(decode_job(encode(job)).value().is_elastic);
  const RankJob rank = decode_rank_job(encode(RankJob{.rank = 7, .env = {{"A", "1"}}})).value();
  EXPECT_EQ(rank.rank, 7);
  EXPECT_EQ(rank.env, (Variables{{"A", "1"}}));
  const status::ViewChange change{.round = 3,
                                  .phase = status::ViewChange::Phase::kProposed,
                                  .commit = 1'234'567'890'123,
                                  .are_hosts_added = true,
                                  .does_leave = true};
  const ViewChangeFor got = decode_view_change(encode(ViewChangeFor{.rank = 5, .change = change})).value();
  EXPECT_EQ(got.rank, 5);
  EXPECT_EQ(got.change, change);
  const BoardReport report =
      decode_board_report(encode(BoardReport{.rank = 2, .round = 9, .commit = 11, .answer = -1})).value();
  EXPECT_EQ(report.rank, 2);
  EXPECT_EQ(report.round, 9);
  EXPECT_EQ(report.commit, 11);
  EXPECT_EQ(report.answer, -1);
}

TEST(MessageReader, messages_come_out_whole_however_they_arrive) {
  const Bytes first = encode_message(MessageType::kPing, {});
  Bytes stream = first;
  const Bytes second = encode_message(MessageType::kExit, encode(Exit{}));
  stream.insert(stream.end(), second.begin(), second.end());
  MessageReader reader;
  std::vector<MessageType> types;
  for (const std::byte byte : stream) {
    reader.feed(std::span(&byte, 1));
    for (const MessageType type : types_of(reader)) types.push_back(type);
  }
  EXPECT_THAT(types, ElementsAre(MessageType::kPing, MessageType::kExit));
}

TEST(MessageReader, words_of_a_login_script_before_the_magic_are_skipped) {
  MessageReader reader(kAgentMagic);
  reader.feed(as_bytes("Welcome to node7!\n"));
  EXPECT_TRUE(types_of(reader).empty());
  reader.feed(as_bytes(kAgentMagic));
  reader.feed(encode_message(MessageType::kPong, {}));
  EXPECT_THAT(types_of(reader), ElementsAre(MessageType::kPong));
  EXPECT_EQ(reader.skipped(), "Welcome to node7!\n");
}

TEST(MessageReader, endless_chatter_before_the_magic_is_refused) {
  MessageReader reader(kAgentMagic);
  reader.feed(as_bytes(std::string(70 << 10, 'x')));
  EXPECT_FALSE(reader.next().is_ok());
}

TEST(MessageReader, message_of_no_or_too_great_length_is_refused_before_it_is_buffered) {
  for (const uint32_t length :
       {uint32_t{0}, static_cast<uint32_t>(kMaxMessageBytes) + 1, uint32_t{0xFFFFFFFF}}) {
    ByteWriter writer;
    writer.put(length);
    MessageReader reader;
    reader.feed(writer.bytes());
    EXPECT_FALSE(reader.next().is_ok()) << length;
  }
}

}  // namespace
}  // namespace rueda::launch::agent_messages_test
