#include "rueda/base/nearest.h"

#include <algorithm>
#include <array>
#include <vector>

namespace rueda {
namespace {

std::string_view without_dashes(std::string_view word) {
  return word.substr(std::min(word.find_first_not_of('-'), word.size()));
}

}  // namespace

// Optimal string alignment: Levenshtein's distance, and the swap of two neighbours is one edit.
size_t edits(std::string_view from, std::string_view to) {
  std::array<std::vector<size_t>, 3> rows;  // two rows before, the one before, this one
  for (std::vector<size_t>& row : rows) row.resize(to.size() + 1);
  for (size_t j = 0; j <= to.size(); ++j) rows[2][j] = j;
  for (size_t i = 1; i <= from.size(); ++i) {
    std::ranges::rotate(rows, rows.begin() + 1);
    auto& [oldest, above, row] = rows;
    row[0] = i;
    for (size_t j = 1; j <= to.size(); ++j) {
      const bool is_equal = from[i - 1] == to[j - 1];
      row[j] = std::min({above[j - 1] + (is_equal ? 0 : 1), above[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1])
        row[j] = std::min(row[j], oldest[j - 2] + 1);
    }
  }
  return rows[2].back();
}

std::string nearest_within(std::string_view word, std::span<const std::string> known, size_t most) {
  std::string best;
  size_t fewest = most + 1;
  for (const std::string& name : known) {
    const size_t count = edits(without_dashes(word), without_dashes(name));
    if (count >= fewest) continue;
    fewest = count;
    best = name;
  }
  return best;
}

std::string nearest_word(std::string_view word, std::span<const std::string> known) {
  const std::string_view letters = without_dashes(word);
  if (letters.size() < 2) return {};  // it would be near to everything short
  const auto begins = [&](const std::string& name) { return without_dashes(name).starts_with(letters); };
  if (std::ranges::count_if(known, begins) == 1) return *std::ranges::find_if(known, begins);
  return nearest_within(letters, known, std::max<size_t>(letters.size() / kLettersPerEdit, 1));
}

}  // namespace rueda
