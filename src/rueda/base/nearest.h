// Which known word a user may have meant. Pure.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace rueda {

// How many letters must be added, left out, replaced, or swapped with the next one.
size_t edits(std::string_view from, std::string_view to);

// Beyond one wrong letter in so many the user probably meant something else.
inline constexpr size_t kLettersPerEdit = 3;

// The known word that is fewest edits away, leading dashes left aside; "" if even that one is more than
// `most`.
std::string nearest_within(std::string_view word, std::span<const std::string> known, size_t most);

// The known word nearest to one that is not known, "" if none is near: at most a third of its letters may be
// wrong. The beginning of a single known word stands for that. Leading dashes do not count.
std::string nearest_word(std::string_view word, std::span<const std::string> known);

}  // namespace rueda
