// Each parser takes its seeds, and many inputs that were made from them at random. Under AddressSanitizer
// this finds what reads or writes too far. tools/fuzz.py searches for longer, led by what inputs reach.
// fuzz_test has the parsers of jobs, command_fuzz_test those of commands that measure and predict.
#include <gtest/gtest.h>

#include <random>

#include "parsers.h"

namespace rueda::fuzz {
namespace {

constexpr int kInputs = 20'000;  // of each seed

using Random = std::mt19937_64;

size_t below(Random& random, size_t bound) {
  return static_cast<size_t>(random() % std::max<size_t>(bound, 1));
}

// Lengths, counts and signs at the edges of their ranges.
void put_number(Random& random, Bytes& input) {
  constexpr std::array<uint64_t, 8> kEdges = {
      0, 1, 0x7F, 0xFFFFFFFF, 0x7FFFFFFF, 0x8000000000000000, 0xFFFF, 0xFFFFFFFFFFFFFFFF};
  const uint64_t number = kEdges[below(random, kEdges.size())];
  const size_t bytes = std::min<size_t>(size_t{1} << below(random, 4), input.size());
  const size_t at = below(random, input.size() - bytes + 1);
  std::memcpy(input.data() + at, &number, bytes);
}

void change_once(Random& random, Bytes& input) {
  switch (below(random, 6)) {
    case 0:
      if (!input.empty())
        input[below(random, input.size())] ^= static_cast<std::byte>(1U << below(random, 8));
      break;
    case 1:
      if (!input.empty()) put_number(random, input);
      break;
    case 2:
      input.resize(below(random, input.size() + 1));
      break;
    case 3:
      input.insert(input.begin() + static_cast<std::ptrdiff_t>(below(random, input.size() + 1)),
                   1 + below(random, 16), static_cast<std::byte>(random()));
      break;
    case 4: {  // a part comes again
      const size_t from = below(random, input.size()), size = below(random, input.size() - from + 1);
      const Bytes part(input.begin() + static_cast<std::ptrdiff_t>(from),
                       input.begin() + static_cast<std::ptrdiff_t>(from + size));
      input.insert(input.end(), part.begin(), part.end());
      break;
    }
    default:
      if (!input.empty()) input[below(random, input.size())] = static_cast<std::byte>(random());
  }
}

TEST(Fuzz, every_parser_survives_what_was_changed_at_random) {
#ifdef RUEDA_COMMAND_PARSERS
  const std::vector<Parser> parsers = command_parsers();
  ASSERT_GE(parsers.size(), 6U);
#else
  const std::vector<Parser> parsers = together({core_parsers(), launch_parsers()});
  ASSERT_GE(parsers.size(), 25U);
#endif
  Random random(1);  // the same inputs each time
  for (const Parser& parser : parsers) {
    SCOPED_TRACE(parser.name);
    ASSERT_FALSE(parser.seeds.empty());
    for (const Bytes& seed : parser.seeds) {
      parser.take(seed);
      for (int i = 0; i < kInputs; ++i) {
        Bytes input = seed;
        for (size_t changes = 1 + below(random, 4); changes > 0; --changes) change_once(random, input);
        parser.take(input);
      }
    }
    parser.take({});
  }
}

}  // namespace
}  // namespace rueda::fuzz
