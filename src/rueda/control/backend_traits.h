// What control must know of the backend that will run a tensor: from which size the tensor travels alone,
// whether its call can be cancelled, and how large buckets should be. The first decides which tensors share
// a transfer, the second what may belong to a learned plan, the third what a plan fuses. control knows no
// backend, so coordinator and planner are given a function (runtime/backend_traits.h makes it). Pure values.
#pragma once

#include <cstdint>
#include <functional>

#include "rueda/control/terms.h"

namespace rueda::control {

struct BackendTraits {
  int64_t alone_bytes = 0;    // a tensor of this size or more travels alone; 0 = none does
  bool can_cancel = true;     // a call with such tensors can be cancelled
  int64_t bucket_bytes = 0;   // how large a bucket of a plan is to become; 0 = as usual
  bool keeps_order = true;    // sums have the same bits whatever is in their bucket
  bool obeys_tuning = false;  // calls follow what their bucket says of algorithm and chunk
};

// The traits of tensors with these terms in this process set. Terms with equal keys (key_of) have equal
// answers. bucket_bytes is only rank 0's, and may change. The default is for tests.
using BackendTraitsLookup = std::function<BackendTraits(int32_t process_set, const Terms& terms)>;
inline BackendTraits default_traits(int32_t /*process_set*/, const Terms& /*terms*/) { return {}; }

}  // namespace rueda::control
