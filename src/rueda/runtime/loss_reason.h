// Why a rank was lost, in the words of its transport.
#pragma once

#include <string>
#include <string_view>

#include "rueda/base/types.h"

namespace rueda::runtime {

// Transports write a sentence about a peer: "rank 1 closed its connection." Returns it for a sentence that
// has named the rank: "it closed its connection." If the peer broke the protocol, the sentence also names the
// channel, for whoever looks for that fault: "rank 1 (channel 0) broke the protocol."
inline std::string loss_reason(Rank rank, std::string_view sentence) {
  const std::string subject = "rank " + std::to_string(rank) + " ";
  if (!sentence.starts_with(subject)) return std::string(sentence);
  sentence.remove_prefix(subject.size());
  const size_t end = sentence.starts_with("(channel ") ? sentence.find(") ") : std::string_view::npos;
  if (end != std::string_view::npos) sentence.remove_prefix(end + 2);
  return "it " + std::string(sentence);
}

}  // namespace rueda::runtime
