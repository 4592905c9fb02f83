// What the last lines of a rank that failed say about the others: whose fault it was. Pure.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rueda/base/types.h"

namespace rueda::launch {

enum class FailureClass : uint8_t {
  kNone,
  kLost,      // another rank was lost or had left, or did not take part in init
  kCut,       // two other ranks, or this one and another, lost or never got their connection
  kStalled,   // another rank never submitted what the others waited for, so the engine ended the job
  kMismatch,  // the ranks disagree about a tensor; all of them raise the same sentence
};

// The sentences stand in an exception of whichever framework the rank uses.
FailureClass failure_class_of(std::span<const std::string> last_lines);

// The rank that the lines call lost, and why.
struct LostRank {
  Rank rank = 0;
  bool has_ended = false;       // its process has
  bool is_unreachable = false;  // its host acknowledged nothing
};
std::optional<LostRank> lost_rank(std::span<const std::string> last_lines);

// The ends of the connection that the lines blame while both ranks were running.
struct CutLink {
  Rank from = 0, to = 0;
  bool was_up = true;
};
std::optional<CutLink> cut_link(std::span<const std::string> last_lines);

// Whether the lines say that it was this rank.
bool blames(std::span<const std::string> last_lines, Rank rank);
// Whether the lines say of any rank that it was that one, as they do not where two ranks disagree.
bool blames_any(std::span<const std::string> last_lines);

}  // namespace rueda::launch
