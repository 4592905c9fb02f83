#include "rueda/store/ended.h"

#include <charconv>

namespace rueda::store {
namespace {

// Takes a number and the blank behind it from the front of the text.
bool take_number(std::string_view& text, int& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end == text.data() + text.size() || *end != ' ') return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()) + 1);
  return true;
}

}  // namespace

std::string format_ended(const EndedRank& ended) {
  return std::to_string(ended.size) + " " + std::to_string(ended.rank) + " " + std::to_string(ended.pid) +
         " " + ended.how;
}

std::optional<EndedRank> parse_ended(std::string_view text) {
  EndedRank ended;
  for (int* const number : {&ended.size, &ended.rank, &ended.pid})
    if (!take_number(text, *number)) return std::nullopt;
  if (ended.rank < 0 || ended.rank >= ended.size) return std::nullopt;
  ended.how = text;
  return ended;
}

}  // namespace rueda::store
