#include "launch/last_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>

namespace rueda::launch {
namespace {

using Lines = std::span<const std::string>;

constexpr std::string_view kOutnumbered = " Outnumbered: rank";       // control/mismatch.h
constexpr std::string_view kStalled = "is stalled for longer than ";  // control/stalls.cc
constexpr std::string_view kNeverCame = " Stalled: rank";             // control/stalls.cc

bool contains(Lines lines, std::string_view text) {
  return std::ranges::any_of(lines,
                             [&](const std::string& line) { return line.find(text) != std::string::npos; });
}

constexpr std::string_view kWasLost = " was lost: ";                            // runtime/failure_detector.cc
constexpr std::string_view kBroke = "the connection between rank ";             // runtime/failure_detector.cc
constexpr std::string_view kNoConnection = "no connection in time from rank ";  // runtime/connect_wait.cc

// The number at the begin of the text.
std::optional<Rank> leading_rank(std::string_view text) {
  Rank rank = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rank);
  return error == std::errc() ? std::optional(rank) : std::nullopt;
}

// "…BEGIN1 (host b, pid 5)BETWEEN2 (host c, pid 7)…" names ranks 1 and 2.
std::optional<CutLink> two_ranks(std::string_view line, std::string_view begin, std::string_view between) {
  const size_t at = line.find(begin);
  if (at == std::string_view::npos) return std::nullopt;
  line.remove_prefix(at + begin.size());
  const size_t second = line.find(between);
  if (second == std::string_view::npos) return std::nullopt;
  const auto from = leading_rank(line), to = leading_rank(line.substr(second + between.size()));
  return from && to ? std::optional(CutLink{.from = *from, .to = *to}) : std::nullopt;
}

// "… Outnumbered: ranks 2, 5." names ranks 2 and 5; mark: " Outnumbered: rank". What stands before the mark
// does not matter: frameworks put labels before each line of an exception, and only its last lines are kept.
bool names_after(std::string_view mark, std::string_view line, Rank rank) {
  const size_t at = line.rfind(mark);
  if (at == std::string_view::npos) return false;
  line.remove_prefix(at + mark.size());
  const std::string number = std::to_string(rank);
  while (true) {
    const size_t digits = line.find_first_of("0123456789");
    if (digits == std::string_view::npos || line.substr(0, digits).find_first_not_of("s, ") != line.npos)
      return false;
    line.remove_prefix(digits);
    const size_t end = std::min(line.find_first_not_of("0123456789"), line.size());
    if (line.substr(0, end) == number) return true;
    line.remove_prefix(end);
  }
}

}  // namespace

FailureClass failure_class_of(Lines last_lines) {
  if (contains(last_lines, kStalled)) return FailureClass::kStalled;
  if (cut_link(last_lines)) return FailureClass::kCut;
  for (const std::string_view lost :
       {kWasLost, std::string_view("Horovod has been shut down. "),
        std::string_view(", so it does not take part in this init; "),
        std::string_view("another rank could not initialize: "),
        std::string_view(" before all ranks were connected, so this init failed; ")})
    if (contains(last_lines, lost)) return FailureClass::kLost;
  const auto is_mismatch = [](const std::string& line) {
    const size_t at = line.find("Mismatched ");
    return at != std::string::npos && (line.find("One rank ", at) != std::string::npos ||
                                       line.find("the ranks disagree", at) != std::string::npos);
  };
  return std::ranges::any_of(last_lines, is_mismatch) ? FailureClass::kMismatch : FailureClass::kNone;
}

std::optional<LostRank> lost_rank(Lines last_lines) {
  for (std::string_view line : last_lines) {
    const size_t at = line.find(kWasLost);
    const size_t subject = at == std::string_view::npos ? at : line.rfind("rank ", at);
    if (subject == std::string_view::npos) continue;
    const std::optional<Rank> rank = leading_rank(line.substr(subject + std::string_view("rank ").size()));
    if (!rank) continue;
    line.remove_prefix(at);
    return LostRank{.rank = *rank,
                    .has_ended = line.find("its process has probably ended") != std::string_view::npos,
                    .is_unreachable = line.find("acknowledged nothing") != std::string_view::npos};
  }
  return std::nullopt;
}

std::optional<CutLink> cut_link(Lines last_lines) {
  for (const std::string_view line : last_lines) {
    if (const auto broke = two_ranks(line, kBroke, ") and rank "); broke) return broke;
    auto never = two_ranks(line, kNoConnection, ") to rank ");
    if (!never) continue;
    never->was_up = false;
    return never;
  }
  return std::nullopt;
}

bool blames(Lines last_lines, Rank rank) {
  const auto any_names_after = [&](std::string_view mark) {
    return std::ranges::any_of(last_lines,
                               [&](const std::string& line) { return names_after(mark, line, rank); });
  };
  switch (failure_class_of(last_lines)) {
    case FailureClass::kNone:
    case FailureClass::kCut:
      return false;
    case FailureClass::kLost:
      return contains(last_lines, fmt::format("rank {} (host ", rank)) ||
             contains(last_lines, fmt::format("rank {} on ", rank));
    case FailureClass::kStalled:
      return any_names_after(kNeverCame);
    case FailureClass::kMismatch:
      return any_names_after(kOutnumbered);
  }
  return false;
}

bool blames_any(Lines last_lines) {
  return failure_class_of(last_lines) != FailureClass::kMismatch || contains(last_lines, kOutnumbered);
}

}  // namespace rueda::launch
