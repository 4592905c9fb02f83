#include "launch/last_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace rueda::launch {
namespace {

using Lines = std::span<const std::string>;

constexpr std::string_view kOutnumbered = " Outnumbered: rank";       // control/mismatch.h
constexpr std::string_view kStalled = "is stalled for longer than ";  // control/stalls.cc

bool contains(Lines lines, std::string_view text) {
  return std::ranges::any_of(lines,
                             [&](const std::string& line) { return line.find(text) != std::string::npos; });
}

// "… Outnumbered: ranks 2, 5." names ranks 2 and 5.
bool is_outnumbered(std::string_view line, Rank rank) {
  const size_t at = line.rfind(kOutnumbered);
  if (at == std::string_view::npos) return false;
  line.remove_prefix(at + kOutnumbered.size());
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

Complaint complaint_of(Lines last_lines) {
  if (contains(last_lines, kStalled)) return Complaint::kStalled;
  for (const std::string_view lost :
       {" was lost: ", "Horovod has been shut down. ", ", so it does not take part in this init; ",
        " before all ranks were connected, so this init failed; "})
    if (contains(last_lines, lost)) return Complaint::kLost;
  const auto is_mismatch = [](const std::string& line) {
    const size_t at = line.find("Mismatched ");
    return at != std::string::npos && (line.find("One rank ", at) != std::string::npos ||
                                       line.find("the ranks disagree", at) != std::string::npos);
  };
  return std::ranges::any_of(last_lines, is_mismatch) ? Complaint::kMismatch : Complaint::kNone;
}

bool accuses(Lines last_lines, Rank rank) {
  switch (complaint_of(last_lines)) {
    case Complaint::kNone:
      return false;
    case Complaint::kLost:
      return contains(last_lines, fmt::format("rank {} (host ", rank)) ||
             contains(last_lines, fmt::format("rank {} on ", rank));
    case Complaint::kStalled:
      return std::ranges::any_of(last_lines, [mark = fmt::format("{}!: [", rank)](const std::string& line) {
        return line.starts_with(mark);
      });
    case Complaint::kMismatch:
      return std::ranges::any_of(last_lines,
                                 [&](const std::string& line) { return is_outnumbered(line, rank); });
  }
  return false;
}

bool accuses_any(Lines last_lines) {
  return complaint_of(last_lines) != Complaint::kMismatch || contains(last_lines, kOutnumbered);
}

}  // namespace rueda::launch
