// What must agree between the ranks that submit a tensor, between tensors that share a transfer, and between
// a tensor and the plan it belongs to: one value, compared in one place.
#pragma once

#include <cstdint>
#include <tuple>

#include "rueda/base/types.h"

namespace rueda::control {

struct Terms {
  Collective what = Collective::kAllreduce;
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;  // reductions; kAverage stays kAverage here
  double prescale = 1.0;
  double postscale = 1.0;
  int32_t device = -1;  // where the framework has the tensor: -1 CPU, else which GPU of the rank
  MemoryKind memory = MemoryKind::kHost;  // where the bytes given to the engine are

  bool operator==(const Terms&) const = default;
};

// Equal where the terms agree. Ranks may use GPUs of different numbers, and shared memory is host memory;
// factors are compared bit by bit.
using TermsKey = std::tuple<Collective, DType, ReduceOp, uint64_t, uint64_t, bool, bool>;
TermsKey key_of(const Terms& terms);

}  // namespace rueda::control
