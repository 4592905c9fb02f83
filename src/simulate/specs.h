// The collectives of a job as the schedules know them. Pure.
#pragma once

#include "rueda/control/bucketing.h"
#include "rueda/control/messages.h"
#include "rueda/schedule/step.h"

namespace rueda::simulate {

inline double bytes_of(const control::Bucket& bucket) {
  return static_cast<double>(elements_of(bucket)) * static_cast<double>(size_of(bucket.dtype));
}

// As runtime/batch makes it. A tensor has one dimension here, so its rows are elements.
inline schedule::Spec spec_of(const control::Bucket& bucket) {
  schedule::Spec spec{.what = bucket.what,
                      .dtype = bucket.dtype,
                      .op = ReduceOp::kSum,
                      .count = elements_of(bucket),
                      .counts = {},
                      .scale = {},
                      .segment_counts = {},
                      .tuning = bucket.tuning};
  if (bucket.what == Collective::kBroadcast) spec.root = bucket.root;
  for (const control::Entry& entry : bucket.entries) {
    spec.counts.resize(entry.rows.size(), 0);
    for (size_t i = 0; i < entry.rows.size(); ++i) spec.counts[i] += entry.rows[i];
  }
  return spec;
}

// The call with what it has for each rank, or between two ranks, changed by `f`; and for so many ranks, where
// they gave or got equally much.
template <class F>
schedule::Spec with_counts(schedule::Spec spec, size_t ranks, const F& f) {
  const int64_t each = spec.counts.empty() ? 0 : spec.counts.front();
  switch (spec.what) {
    case Collective::kAllgather:
    case Collective::kReducescatter:
      spec.counts.assign(ranks, f(each));
      break;
    case Collective::kAlltoall:
      spec.counts.assign(ranks * ranks, f(each));
      break;
    default:
      spec.count = f(spec.count);
      return spec;
  }
  spec.count = f(each) * (spec.what == Collective::kAllgather ? 1 : static_cast<int64_t>(ranks));
  return spec;
}

inline schedule::Spec allreduce_spec(int64_t elements) {  // float32
  return {.count = elements, .counts = {}, .scale = {}, .segment_counts = {}};
}

inline schedule::Spec barrier_spec() {
  return {.what = Collective::kBarrier, .counts = {}, .scale = {}, .segment_counts = {}};
}

}  // namespace rueda::simulate
