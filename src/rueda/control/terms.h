// What must agree between the ranks that submit a tensor, between tensors that share a transfer, and between
// a tensor and the plan it belongs to: one value, compared in one place.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>
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
  Wire wire = Wire::kExact;               // how the sum travels between hosts

  bool operator==(const Terms&) const = default;
};

// Every term once, in the order of the wire. An enum needs a count_of beside it. T: Terms or const Terms.
template <class T, class F>
void for_each_term(T& terms, const F& f) {
  f(terms.what);
  f(terms.dtype);
  f(terms.op);
  f(terms.memory);
  f(terms.device);
  f(terms.prescale);
  f(terms.postscale);
  f(terms.wire);
}

// Equal if the terms agree. Ranks may use GPUs with different numbers, and shared memory counts as host
// memory. Factors are compared bit by bit.
inline auto key_of(const Terms& terms) {
  return std::tuple(terms.what, terms.dtype, terms.op, std::bit_cast<uint64_t>(terms.prescale),
                    std::bit_cast<uint64_t>(terms.postscale), terms.device >= 0,
                    terms.memory == MemoryKind::kDevice, terms.wire);
}
using TermsKey = decltype(key_of(Terms()));

// The name in sentences and in the timeline: an allreduce with op Adasum is "ADASUM".
inline std::string_view operation_name(const Terms& terms) {
  return terms.what == Collective::kAllreduce && terms.op == ReduceOp::kAdasum ? "ADASUM"
                                                                               : name_of(terms.what);
}

}  // namespace rueda::control
