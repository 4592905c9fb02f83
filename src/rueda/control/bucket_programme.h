// Which tensors of a step travel together, so that the last of them is there as early as possible: a dynamic
// programme over the tensors in the order in which they become ready, after MG-WFBP (Shi, Chu and Li, INFOCOM
// 2019), for any cost of a bucket. One bucket travels after the other. T tensors take O(T²) at most. Pure.
//
// Example: buckets cost 10 us and 1 us a byte; tensors of 1, 1 and 30 bytes are ready at 0, 5 and 50 us.
// Alone the first two take until 22 us, together from 5 to 17 us; both are done before the third is ready.
// All three together would begin at 50 us and take until 92 us, the third alone takes until 90 us.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "rueda/base/clock.h"

namespace rueda::control {

struct ReadyTensor {
  Nanos ready = 0;
  int64_t bytes = 0;
  size_t first = 0;  // may be in one bucket with those from this one on
};

struct BucketCosts {
  std::function<double(int64_t bytes)> call_us;  // of a bucket
  double packing_ns = 0;                         // more for each byte of a bucket with several tensors
  int64_t most_bytes = INT64_MAX;                // of such a bucket
};

struct BucketProgramme {
  std::vector<bool> begins;  // [tensors] a bucket begins with it
  Nanos end = 0;             // when the last bucket is there
};
// Each bucket ends as early as it can; of plans that are equal in that, the one with larger buckets.
BucketProgramme best_buckets(std::span<const ReadyTensor> tensors, const BucketCosts& costs);
// When the last bucket of this plan would be there.
Nanos end_of(std::span<const ReadyTensor> tensors, const std::vector<bool>& begins, const BucketCosts& costs);

}  // namespace rueda::control
