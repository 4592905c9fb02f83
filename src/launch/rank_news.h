// What an agent reports about one rank, decoded and checked. Pure.
#pragma once

#include <span>
#include <variant>

#include "launch/agent_messages.h"
#include "rueda/base/types.h"

namespace rueda::launch {

struct RankStarted {
  Rank rank = 0;
  int pid = 0;
};

struct OutputPart {
  Rank rank = 0;
  Stream stream = Stream::kStdout;
  std::string_view text;  // borrowed from the message
};

struct ResultPart {
  Rank rank = 0;
  std::span<const std::byte> bytes;  // borrowed from the message
};

struct MetricsText {
  Rank rank = 0;
  std::string_view text;  // borrowed from the message
};

using RankNews = std::variant<RankStarted, OutputPart, ResultPart, MetricsText, Exit>;

// message: of type kStarted, kOutput, kFile, kMetrics or kExit. Refuses ranks outside [0, size).
Result<RankNews> decode_rank_news(const AgentMessage& message, int size);

}  // namespace rueda::launch
