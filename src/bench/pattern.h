// The contents of buffers: small whole numbers, whose sums are exact. They differ between neighbouring
// elements, ranks and iterations. Pure.
#pragma once

#include <cstdint>
#include <span>

namespace rueda::bench {

// Element i is ((i + phase) mod 64) * factor + offset.
struct Pattern {
  int64_t phase = 0;
  float factor = 1, offset = 0;
};

// The input of rank `rank` in iteration `iteration`, and the sum of the inputs of ranks 0..ranks-1. `first`
// is the index of the first element of the span in the whole buffer of the rank.
Pattern pattern_of(int rank, int64_t iteration, int64_t first = 0);
Pattern pattern_of_sum(int ranks, int64_t iteration, int64_t first = 0);

void fill(std::span<float> values, Pattern pattern);
// Whether every element has the expected value.
bool holds(std::span<const float> values, Pattern pattern);
// The same for sums that are rounded on their way: within this share of the largest value.
bool nearly_holds(std::span<const float> values, Pattern pattern, double share);

}  // namespace rueda::bench
