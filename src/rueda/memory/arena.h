// Allocates shared buffers from one SharedMemory; every rank of the host can read and write them in place. It
// takes the best fit among the free ranges, which suits buffers and gradients, not small objects. Any thread.
//
// After fork() parent and child would share the mapping, and each would see the other's changes. The child
// therefore gets a private copy of the blocks in use, at the same addresses. The fork waits until the copy is
// made: about 1 ms per MB in use.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "rueda/memory/shared_memory.h"

namespace rueda::memory {

// The size of the machine's memory, or less if limits of the process require it: ulimit -f, and ulimit -v,
// because every rank also maps the arenas of the other ranks of its host.
size_t default_arena_bytes();

class Arena {
 public:
  // Blocks begin at multiples of this. Blocks of kPageFrom bytes or more begin at a page.
  static constexpr size_t kLine = 64;
  static constexpr size_t kPage = 4096;
  static constexpr size_t kPageFrom = 64 << 10;

  static Result<std::unique_ptr<Arena>> create(size_t bytes);
  explicit Arena(SharedMemory memory);

  // Returns null if no range is large enough. The contents are unspecified. 0 bytes count as 1.
  void* allocate(size_t bytes);
  // Returns false if no block begins there.
  bool release(void* block);
  // Returns the pages of free ranges to the system.
  void trim();

  // The handlers of pthread_atfork, in its order. The forking thread holds the lock from the first handler
  // until one of the others ends. A child can read, write and release blocks, but cannot allocate new ones.
  void before_fork();
  void after_fork_in_parent();
  void after_fork_in_child();

  [[nodiscard]] const SharedMemory& memory() const { return memory_; }
  [[nodiscard]] size_t used_bytes() const;

 private:
  void add_free(size_t begin, size_t bytes);
  void remove_free(std::map<size_t, size_t>::iterator range);

  SharedMemory memory_;
  mutable std::mutex mutex_;
  std::map<size_t, size_t> free_;                // offset -> bytes; neighbours are merged
  std::set<std::pair<size_t, size_t>> by_size_;  // the same as (bytes, offset)
  std::map<size_t, size_t> used_;                // offset -> bytes
  size_t used_bytes_ = 0;
  void* copy_ = nullptr;  // during a fork: the copy of [0, copied_) of the arena
  size_t copied_ = 0;
  bool is_forked_child_ = false;
};

}  // namespace rueda::memory
