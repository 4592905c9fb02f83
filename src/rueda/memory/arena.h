// Hands out pieces of one SharedMemory: buckets that every rank of the host can read and write in place. Best
// fit over a sorted list of free ranges: for buckets, which are few and large, not for small objects. Any
// thread.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>

#include "rueda/memory/shared_memory.h"

namespace rueda::memory {

class Arena {
 public:
  // Blocks begin at multiples of this; from kPageFrom bytes on, at pages.
  static constexpr size_t kLine = 64;
  static constexpr size_t kPage = 4096;
  static constexpr size_t kPageFrom = 64 << 10;

  static Result<std::unique_ptr<Arena>> create(size_t bytes);
  explicit Arena(SharedMemory memory);

  // Null when no range is large enough. The contents are unspecified. bytes 0 is taken as 1.
  void* allocate(size_t bytes);
  // False when no block begins there.
  bool release(void* block);

  [[nodiscard]] const SharedMemory& memory() const { return memory_; }
  [[nodiscard]] size_t used_bytes() const;

 private:
  SharedMemory memory_;
  mutable std::mutex mutex_;
  std::map<size_t, size_t> free_;  // offset -> bytes; neighbours are merged
  std::map<size_t, size_t> used_;  // offset -> bytes
  size_t used_bytes_ = 0;
};

}  // namespace rueda::memory
