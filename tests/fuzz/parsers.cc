#include "parsers.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

namespace rueda::fuzz {

void require(bool holds, std::string_view what) {
  if (holds) return;
  std::fprintf(stderr, "fuzz: this does not hold: %.*s\n", static_cast<int>(what.size()), what.data());
  std::abort();
}

std::vector<Parser> all_parsers() {
  std::vector<Parser> all = core_parsers();
  for (Parser& one : command_parsers()) all.push_back(std::move(one));
  return all;
}

}  // namespace rueda::fuzz
