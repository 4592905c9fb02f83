#include "parsers.h"

#include <cstdio>
#include <cstdlib>

namespace rueda::fuzz {

void require(bool holds, std::string_view what) {
  if (holds) return;
  std::fprintf(stderr, "fuzz: this does not hold: %.*s\n", static_cast<int>(what.size()), what.data());
  std::abort();
}

std::vector<Parser> together(std::initializer_list<std::vector<Parser>> some) {
  std::vector<Parser> all;
  for (const std::vector<Parser>& each : some) all.insert(all.end(), each.begin(), each.end());
  return all;
}

}  // namespace rueda::fuzz
