// Lays the tensors of one call out as one input and one output, and takes the result apart again,
// for backends that need one run of memory. A single tensor stays in its own memory if possible.
// Engine thread only.
#pragma once

#include <cstddef>

#include "rueda/backend/backend.h"
#include "rueda/backend/reused_buffer.h"

namespace rueda::backend {

// How many elements of the segment member `me` of n contributes to a call, and how many it receives.
int64_t elements_given(Collective what, const Segment& segment, Rank me, Rank n);
int64_t elements_taken(Collective what, const Segment& segment, Rank me, Rank n);

class Packing {
 public:
  // Whether bytes must be copied before the call can run. The answer is the same on every member that
  // has not joined.
  [[nodiscard]] static bool is_needed(const Call& call);
  // Sets input and output. is_copied: copies the bytes even if is_needed() does not ask for it. Fails if this
  // machine has no memory for the buffer.
  Status pack(const Call& call, bool is_copied);
  void clear();  // sets input and output to null
  // Copies the results to the outputs of the tensors, if pack() has copied the inputs.
  void unpack(const Call& call);

  [[nodiscard]] const std::byte* input() const { return input_; }
  [[nodiscard]] std::byte* output() const { return output_; }

 private:
  ReusedBuffer buffer_;
  bool is_packed_ = false;
  const std::byte* input_ = nullptr;
  std::byte* output_ = nullptr;
};

}  // namespace rueda::backend
