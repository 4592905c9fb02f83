#include "launch/rank_news.h"

#include <gmock/gmock.h>

namespace rueda::launch::rank_news_test {
namespace {

AgentMessage message_of(MessageType type, const ByteWriter& writer) { return {type, writer.bytes()}; }

ByteWriter of_rank(int32_t rank) {
  ByteWriter writer;
  writer.put(rank);
  return writer;
}

TEST(RankNews, start_and_exit_are_decoded) {
  ByteWriter writer = of_rank(1);
  writer.put(int32_t{77});
  const Result<RankNews> news = decode_rank_news(message_of(MessageType::kStarted, writer), 2);
  ASSERT_TRUE(news.is_ok()) << news.status().why;
  EXPECT_EQ(std::get<RankStarted>(news.value()).pid, 77);

  Exit exit;
  exit.rank = 1;
  exit.exit_code = 3;
  const AgentMessage message{MessageType::kExit, encode(exit)};
  const Result<RankNews> end = decode_rank_news(message, 2);
  ASSERT_TRUE(end.is_ok()) << end.status().why;
  EXPECT_EQ(std::get<Exit>(end.value()).exit_code, 3);
}

TEST(RankNews, output_and_result_borrow_the_bytes_behind_their_head) {
  ByteWriter writer = of_rank(0);
  writer.put(Stream::kStderr);
  writer.put_raw(as_bytes("words"));
  const AgentMessage output = message_of(MessageType::kOutput, writer);
  const Result<RankNews> news = decode_rank_news(output, 1);
  ASSERT_TRUE(news.is_ok()) << news.status().why;
  EXPECT_EQ(std::get<OutputPart>(news.value()).stream, Stream::kStderr);
  EXPECT_EQ(std::get<OutputPart>(news.value()).text, "words");

  ByteWriter result = of_rank(0);
  result.put_raw(as_bytes("pickle"));
  const AgentMessage file = message_of(MessageType::kFile, result);
  const Result<RankNews> part = decode_rank_news(file, 1);
  ASSERT_TRUE(part.is_ok()) << part.status().why;
  EXPECT_EQ(as_text(std::get<ResultPart>(part.value()).bytes), "pickle");

  const AgentMessage metrics = message_of(MessageType::kMetrics, result);
  const Result<RankNews> text = decode_rank_news(metrics, 1);
  ASSERT_TRUE(text.is_ok()) << text.status().why;
  EXPECT_EQ(std::get<MetricsText>(text.value()).text, "pickle");
}

TEST(RankNews, rank_outside_the_job_is_refused) {
  for (const Rank rank : {-1, 2}) {
    ByteWriter writer = of_rank(rank);
    writer.put(int32_t{77});
    EXPECT_FALSE(decode_rank_news(message_of(MessageType::kStarted, writer), 2).is_ok()) << rank;
    Exit exit;
    exit.rank = rank;
    EXPECT_FALSE(decode_rank_news({MessageType::kExit, encode(exit)}, 2).is_ok()) << rank;
  }
}

TEST(RankNews, message_cut_short_is_refused) {
  for (const MessageType type : {MessageType::kStarted, MessageType::kOutput, MessageType::kFile,
                                 MessageType::kMetrics, MessageType::kExit})
    EXPECT_FALSE(decode_rank_news({type, {std::byte{0}}}, 2).is_ok());
  EXPECT_FALSE(decode_rank_news(message_of(MessageType::kStarted, of_rank(0)), 2).is_ok());
  EXPECT_FALSE(decode_rank_news(message_of(MessageType::kOutput, of_rank(0)), 2).is_ok());
}

}  // namespace
}  // namespace rueda::launch::rank_news_test
