#include "launch/branch_messages.h"

#include <gmock/gmock.h>

#include <random>

namespace rueda::launch::branch_messages_test {
namespace {

using ::testing::ElementsAre;

BranchOrder some_order() {
  BranchOrder order{.branch = 70, .host = "node-70", .binary = "/opt/rueda", .ssh = {}};
  order.ssh.port = 2222;
  order.ssh.identity_file = "/home/a/key";
  order.ssh.config_file = "/home/a/config";
  order.ssh.args = {"-o", "Compression=yes"};
  order.ssh.connect_timeout_s = 7;
  order.ssh.program = "/usr/bin/ssh";
  return order;
}

TEST(BranchMessages, order_survives_the_wire) {
  const Result<BranchOrder> got = decode_branch_order(encode(some_order()));
  ASSERT_TRUE(got.is_ok());
  EXPECT_EQ(got.value().branch, 70);
  EXPECT_EQ(got.value().host, "node-70");
  EXPECT_EQ(got.value().binary, "/opt/rueda");
  EXPECT_EQ(got.value().ssh.port, 2222);
  EXPECT_EQ(got.value().ssh.identity_file, "/home/a/key");
  EXPECT_EQ(got.value().ssh.config_file, "/home/a/config");
  EXPECT_THAT(got.value().ssh.args, ElementsAre("-o", "Compression=yes"));
  EXPECT_EQ(got.value().ssh.connect_timeout_s, 7);
  EXPECT_EQ(got.value().ssh.program, "/usr/bin/ssh");
}

TEST(BranchMessages, bytes_of_a_branch_arrive_as_they_were) {
  const Bytes sent = encode(BranchPart{.branch = 3, .stream = Stream::kStderr, .bytes = as_bytes("a\0b\n")});
  const Result<BranchPart> got = decode_branch_part(sent);
  ASSERT_TRUE(got.is_ok());
  EXPECT_EQ(got.value().branch, 3);
  EXPECT_EQ(got.value().stream, Stream::kStderr);
  EXPECT_EQ(as_text(got.value().bytes), "a\0b\n");
}

TEST(BranchMessages, end_survives_the_wire) {
  const Result<BranchEnd> got =
      decode_branch_end(encode(BranchEnd{.branch = 5, .wait_status = 255 << 8, .trouble = "no ssh"}));
  ASSERT_TRUE(got.is_ok());
  EXPECT_EQ(got.value().branch, 5);
  EXPECT_EQ(got.value().wait_status, 255 << 8);
  EXPECT_EQ(got.value().trouble, "no ssh");
}

// As an agent of a tree does it, twice.
TEST(BranchMessages, a_message_comes_through_two_agents) {
  const Bytes ping = encode_message(MessageType::kPing, {});
  const Bytes once = encode_message(MessageType::kToBranch, for_branch(7, ping));
  const Bytes twice = encode_message(MessageType::kToBranch, for_branch(2, once));
  Bytes bytes = twice;
  for (const int32_t number : {2, 7}) {
    MessageReader reader;
    reader.feed(bytes);
    const auto message = reader.next();
    ASSERT_TRUE(message.is_ok() && message.value());
    ASSERT_EQ(message.value()->type, MessageType::kToBranch);
    ByteReader payload(message.value()->payload);
    EXPECT_EQ(payload.get<int32_t>(), number);
    bytes.assign(message.value()->payload.begin() + sizeof(number), message.value()->payload.end());
  }
  EXPECT_EQ(bytes, ping);
}

TEST(BranchMessages, a_message_for_all_holds_no_other_one_for_all) {
  const Result<AgentMessage> news = decode_for_all(for_all(MessageType::kNews, as_bytes("x")));
  ASSERT_TRUE(news.is_ok());
  EXPECT_EQ(news.value().type, MessageType::kNews);
  EXPECT_EQ(as_text(news.value().payload), "x");
  EXPECT_FALSE(decode_for_all(for_all(MessageType::kForAll, as_bytes("x"))).is_ok());
  EXPECT_FALSE(decode_for_all({}).is_ok());
}

TEST(BranchMessages, every_cut_is_refused) {
  const Bytes order = encode(some_order());
  const Bytes end = encode(BranchEnd{.branch = 1, .trouble = "why"});
  for (size_t size = 0; size < order.size(); ++size)
    EXPECT_FALSE(decode_branch_order(std::span(order).first(size)).is_ok()) << size;
  for (size_t size = 0; size < end.size(); ++size)
    EXPECT_FALSE(decode_branch_end(std::span(end).first(size)).is_ok()) << size;
  const Bytes part = encode(BranchPart{.branch = 1, .stream = Stream::kStdout, .bytes = {}});
  for (size_t size = 0; size < part.size(); ++size)
    EXPECT_FALSE(decode_branch_part(std::span(part).first(size)).is_ok()) << size;
}

TEST(BranchMessages, noise_is_read_without_harm) {
  std::mt19937 random(7);
  for (int round = 0; round < 20'000; ++round) {
    Bytes noise(random() % 48);
    for (std::byte& byte : noise) byte = static_cast<std::byte>(random() % 4);
    (void)decode_branch_order(noise);
    (void)decode_branch_part(noise);
    (void)decode_branch_end(noise);
    (void)decode_for_all(noise);
  }
}

}  // namespace
}  // namespace rueda::launch::branch_messages_test
