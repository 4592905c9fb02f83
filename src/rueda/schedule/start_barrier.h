// Whether a call that may be cancelled begins with a barrier. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "rueda/schedule/step.h"

namespace rueda::schedule {

// A tensor up to this size is copied before it is reduced, so that a cancelled call leaves it as it was.
inline constexpr int64_t kCopiedBytes = 256 << 10;

// Whether a call leaves its inputs alone until all members have started it. Two ranks write only after they
// have heard from one another: the verifier proves it, and prepare_schedule() checks it. Several tensors
// (segments) are reduced in a separate buffer.
inline bool spares_inputs(size_t segments, Rank members) { return segments > 1 || members == 2; }

// A call that may be cancelled must not end, and must not change its inputs, before all members have started
// it. If the call does not ensure this itself, and its tensors are too large to be copied, a barrier runs
// first. Every member decides alike: whether the outputs are the inputs, which may differ between members,
// plays no part. A call with a wire type has copies of its inputs.
inline bool needs_start_barrier(const Spec& spec, size_t segments, Rank members, int64_t copied_bytes) {
  if (!waits_for_all(spec)) return true;
  if (spec.what != Collective::kAllreduce || spec.wire != Wire::kExact) return false;
  const auto bytes = spec.count * static_cast<int64_t>(size_of(spec.dtype));
  return !spares_inputs(segments, members) && bytes > copied_bytes;
}

}  // namespace rueda::schedule
