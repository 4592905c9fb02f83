// torch's CPU allocator with one change: a block that has the size of an awaited gradient and is allocated
// during a backward pass comes from memory that all ranks of the host map. torch allocates all other blocks.
// Any thread may call it.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "plugins/torch/c10.h"

namespace rueda::torch {

class ArenaAllocator final : public Allocator {
 public:
  // Only one can exist, because a deleter of torch is a function without context. It is never destroyed once
  // torch has it.
  ArenaAllocator(Allocator* original, int (*graph_task)());

  DataPtr allocate(size_t bytes) override;
  [[nodiscard]] bool is_simple_data_ptr(const DataPtr& pointer) const override;
  [[nodiscard]] Deleter raw_deleter() const override;
  void copy_data(void* to, const void* from, size_t bytes) const override;

  // A gradient of this size is awaited, or no longer awaited. Both return how many gradients of any size
  // are awaited then.
  int32_t await(size_t bytes);
  int32_t forget(size_t bytes);
  // Ends the use of the arena for good. It is for a forked child, in which a thread that does not exist there
  // may hold the lock.
  void leave_to_torch();

  [[nodiscard]] int64_t placed() const { return placed_.load(); }    // blocks that came from the arena
  [[nodiscard]] int64_t refused() const { return refused_.load(); }  // blocks for which it had no room

 private:
  [[nodiscard]] bool is_awaited(size_t bytes);

  Allocator* const original_;
  int (*const graph_task_)();
  std::atomic<bool> is_left_{false};
  std::mutex mutex_;
  std::unordered_map<size_t, int32_t> awaited_;  // bytes -> gradients
  int32_t total_ = 0;
  std::atomic<int64_t> placed_{0}, refused_{0};
};

// While one exists, blocks that its thread allocates count as gradients outside of a backward pass, too.
class Placing {
 public:
  Placing();
  ~Placing();
  Placing(const Placing&) = delete;
  Placing& operator=(const Placing&) = delete;
};

}  // namespace rueda::torch
