// The two halves of a ring, shared by allreduce, reducescatter and allgather.
#pragma once

#include "rueda/schedule/blocks.h"
#include "rueda/schedule/builder.h"

namespace rueda::schedule {

struct RingCall {
  const Spec& spec;
  Rank size = 0;
  Rank me = -1;
  const Blocks& blocks;
  Chunks chunks;
};

// The partial sum of a block travels once around the ring, and each rank adds its own input. Block r ends at
// rank r, in result.
void ring_reduce_scatter(Builder& builder, const RingCall& call, const Slice& result);

// Finished blocks travel once around the ring. source: my block. The others arrive in the output.
void ring_allgather(Builder& builder, const RingCall& call, const Slice& source);

}  // namespace rueda::schedule
