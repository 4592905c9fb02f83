// Hands out pieces of one SharedMemory: buckets that every rank of the host can read and write in place. Best
// fit over the free ranges: for buckets and gradients, not for small objects. Any thread.
//
// A shared mapping would be one memory for parent and child after fork(). Memory of a process must not change
// under its child, nor be changed by it, so a child gets a private copy of what is in use, made before the
// fork, at the same addresses. The fork waits for that copy: some 1 ms per MB in use.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "rueda/memory/shared_memory.h"

namespace rueda::memory {

// As much as the machine has memory, unless limits of the process forbid that (ulimit -f, ulimit -v: every
// rank of a host also maps the others').
size_t default_arena_bytes();

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
  // Gives the pages of free ranges back to the system.
  void trim();

  // Handlers of pthread_atfork, in its order; from the first to one of the others this thread holds the lock.
  // In a child blocks can be read, written and released, but no new ones are to be had.
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
  void* copy_ = nullptr;  // between before_fork and what follows: [0, copied_) of the arena
  size_t copied_ = 0;
  bool is_forked_child_ = false;
};

}  // namespace rueda::memory
