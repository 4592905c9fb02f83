// Lays the tensors of one call out as one input and one output, and takes the result apart again: for
// backends that need one run of memory. One tensor goes by its own memory where it can. Engine thread only.
#pragma once

#include <cstdlib>
#include <memory>

#include "rueda/backend/backend.h"

namespace rueda::backend {

// Elements that the segment gives to, and gets from, a call on member `me` of n.
int64_t elements_given(Collective what, const Segment& segment, Rank me, Rank n);
int64_t elements_taken(Collective what, const Segment& segment, Rank me, Rank n);

class Packing {
 public:
  // Must bytes be moved before the call can run? The same on every member, unless it has joined.
  [[nodiscard]] static bool is_needed(const Call& call);
  // Sets input and output. is_copied: moves the bytes although is_needed() does not ask for it. Fails when
  // this machine has no memory for the buffer.
  Status pack(const Call& call, bool is_copied);
  void clear();  // no memory: input and output are null
  // Moves the results to the tensors' outputs, if pack() moved them.
  void unpack(const Call& call);

  [[nodiscard]] const std::byte* input() const { return input_; }
  [[nodiscard]] std::byte* output() const { return output_; }

 private:
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  [[nodiscard]] std::byte* reserve(size_t bytes);  // null when there is no memory

  std::unique_ptr<std::byte, Free> buffer_;  // grows to what is asked, and is kept
  size_t capacity_ = 0;
  bool is_packed_ = false;
  const std::byte* input_ = nullptr;
  std::byte* output_ = nullptr;
};

}  // namespace rueda::backend
