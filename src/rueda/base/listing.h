// The first of many things, for a sentence: "a; b; and 12 more".
#pragma once

#include <cstddef>
#include <string>

namespace rueda {

// describe(thing) returns a string. At most `most` things are described, the others are counted.
template <class Things, class Describe>
std::string list_first(const Things& things, size_t most, Describe&& describe) {
  std::string text;
  for (size_t i = 0; i < things.size() && i < most; ++i) text += (i == 0 ? "" : "; ") + describe(things[i]);
  if (things.size() > most) text += "; and " + std::to_string(things.size() - most) + " more";
  return text;
}

}  // namespace rueda
