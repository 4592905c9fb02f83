// The collectives of a job as the schedules know them. Pure.
#pragma once

#include "rueda/control/messages.h"
#include "rueda/schedule/step.h"

namespace rueda::simulate {

inline int64_t elements_of(const control::Bucket& bucket) {
  int64_t sum = 0;
  for (const control::Entry& entry : bucket.entries) {
    int64_t count = 1;
    for (const int64_t length : entry.shape) count *= length;
    sum += count;
  }
  return sum;
}

inline double bytes_of(const control::Bucket& bucket) {
  return static_cast<double>(elements_of(bucket)) * static_cast<double>(size_of(bucket.dtype));
}

inline schedule::Spec spec_of(const control::Bucket& bucket) {
  return {.what = bucket.what,
          .dtype = bucket.dtype,
          .op = ReduceOp::kSum,
          .count = elements_of(bucket),
          .counts = {},
          .scale = {},
          .segment_counts = {}};
}

inline schedule::Spec allreduce_spec(int64_t elements) {  // float32
  return {.count = elements, .counts = {}, .scale = {}, .segment_counts = {}};
}

inline schedule::Spec barrier_spec() {
  return {.what = Collective::kBarrier, .counts = {}, .scale = {}, .segment_counts = {}};
}

}  // namespace rueda::simulate
