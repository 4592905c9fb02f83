#include "launch/rank_news.h"

namespace rueda::launch {
namespace {

Status malformed() { return {Code::kInvalidArgument, "its agent sent a malformed message"}; }

}  // namespace

Result<RankNews> decode_rank_news(const AgentMessage& message, int size) {
  const auto is_rank = [size](Rank rank) { return rank >= 0 && rank < size; };
  if (message.type == MessageType::kExit) {
    Result<Exit> exit = decode_exit(message.payload);
    if (!exit.is_ok()) return exit.status();
    if (!is_rank(exit.value().rank)) return malformed();
    return RankNews(std::move(exit.value()));
  }
  ByteReader reader(message.payload);
  const std::span<const std::byte> payload(message.payload);
  const auto rank = reader.get<int32_t>();
  if (!reader.is_ok() || !is_rank(rank)) return malformed();
  if (message.type == MessageType::kStarted) {
    const RankStarted started{.rank = rank, .pid = reader.get<int32_t>()};
    if (!reader.is_ok()) return malformed();
    return RankNews(started);
  }
  if (message.type == MessageType::kOutput) {
    const auto stream = reader.get<Stream>();
    if (!reader.is_ok()) return malformed();
    return RankNews(OutputPart{.rank = rank,
                               .stream = stream == Stream::kStdout ? Stream::kStdout : Stream::kStderr,
                               .text = as_text(payload.subspan(sizeof rank + sizeof stream))});
  }
  if (message.type == MessageType::kMetrics)
    return RankNews(MetricsText{.rank = rank, .text = as_text(payload.subspan(sizeof rank))});
  return RankNews(ResultPart{.rank = rank, .bytes = payload.subspan(sizeof rank)});
}

}  // namespace rueda::launch
