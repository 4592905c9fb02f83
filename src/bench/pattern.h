// Contents of buffers: small whole numbers that sums keep exactly, different in every element's
// neighbourhood, on every rank and in every iteration. Pure.
#pragma once

#include <cstdint>
#include <span>

namespace rueda::bench {

// Element i is ((i + phase) mod 64) * factor + offset.
struct Pattern {
  int64_t phase = 0;
  float factor = 1, offset = 0;
};

// What rank `rank` gives in iteration `iteration`, and the sum of what ranks 0..ranks-1 give; `first` is the
// index of the span's first element within that rank's whole buffer.
Pattern pattern_of(int rank, int64_t iteration, int64_t first = 0);
Pattern pattern_of_sum(int ranks, int64_t iteration, int64_t first = 0);

void fill(std::span<float> values, Pattern pattern);
// Whether every element is as it must be.
bool holds(std::span<const float> values, Pattern pattern);

}  // namespace rueda::bench
