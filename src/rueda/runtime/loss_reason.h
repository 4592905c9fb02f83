// Why a rank was lost, in the words of its transport.
#pragma once

#include <string>
#include <string_view>

#include "rueda/base/types.h"

namespace rueda::runtime {

// Transports write a sentence about a channel: "rank 1 (channel 0) closed its connection." Returns it without
// the name of the rank, for a sentence that has named the rank: "on channel 0 it closed its connection."
inline std::string loss_reason(Rank rank, std::string_view sentence) {
  const std::string subject = "rank " + std::to_string(rank) + " (channel ";
  const size_t end = sentence.find(") ");
  if (!sentence.starts_with(subject) || end == std::string_view::npos) return std::string(sentence);
  std::string reason = "on channel ";
  reason += sentence.substr(subject.size(), end - subject.size());
  reason += " it ";
  reason += sentence.substr(end + 2);
  return reason;
}

}  // namespace rueda::runtime
