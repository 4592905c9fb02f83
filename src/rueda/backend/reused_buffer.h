// Memory for packed tensors or partial results, kept between calls. It grows when a call needs more, and
// shrinks when for a long time no call has needed a quarter of it. Engine thread only.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>

#include "rueda/base/status.h"

namespace rueda::backend {

class ReusedBuffer {
 public:
  static constexpr int kShrinkAfter = 256;  // calls

  // Returns at least `bytes` bytes, aligned to a page, with undefined contents; never null. Must not be
  // called while a call still uses the memory returned before. Fails if this machine has no memory for it.
  Result<std::byte*> reserve(size_t bytes);
  // A call needs none of it.
  void pass();
  [[nodiscard]] size_t bytes() const { return bytes_; }

 private:
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  Status resize(size_t need);
  [[nodiscard]] bool is_long_too_large(size_t need);

  std::unique_ptr<std::byte, Free> memory_;
  size_t bytes_ = 0;
  size_t largest_ = 0;  // what the last modest_ calls needed at most
  int modest_ = 0;      // how many calls in a row needed less than a quarter
};

}  // namespace rueda::backend
