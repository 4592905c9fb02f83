#include "plugins/torch/allocator.h"

#include <cstring>

#include "rueda/rueda.h"

namespace rueda::torch {
namespace {

Deleter g_original_deleter = nullptr;
// Whether gradients are awaited. If not, nobody will need the pages of those that are freed.
std::atomic<bool> g_serves{false};
// All blocks of the arena lie between these addresses, so the usual question whether a block is torch's own
// takes no lock.
std::atomic<uintptr_t> g_lowest{UINTPTR_MAX}, g_highest{0};
thread_local int t_placing = 0;

void note(const void* block) {
  const auto at = reinterpret_cast<uintptr_t>(block);
  for (uintptr_t seen = g_lowest.load(); at < seen && !g_lowest.compare_exchange_weak(seen, at);) {
  }
  for (uintptr_t seen = g_highest.load(); at > seen && !g_highest.compare_exchange_weak(seen, at);) {
  }
}

void release(void* block) {
  const auto at = reinterpret_cast<uintptr_t>(block);
  if (at >= g_lowest.load(std::memory_order_relaxed) && at <= g_highest.load(std::memory_order_relaxed) &&
      rueda_is_shared_buffer(block) != 0) {
    rueda_release_memory(block);
    if (!g_serves) rueda_trim_memory();
  } else {
    g_original_deleter(block);
  }
}

}  // namespace

Placing::Placing() { ++t_placing; }
Placing::~Placing() { --t_placing; }

ArenaAllocator::ArenaAllocator(Allocator* original, int (*graph_task)())
    : original_(original), graph_task_(graph_task) {
  g_original_deleter = original->raw_deleter();
}

DataPtr ArenaAllocator::allocate(size_t bytes) {
  if (bytes > 0 && g_serves.load(std::memory_order_relaxed) && (t_placing > 0 || graph_task_() >= 0) &&
      is_awaited(bytes)) {
    if (void* const block = rueda_alloc(bytes)) {
      note(block);
      placed_.fetch_add(1, std::memory_order_relaxed);
      DataPtr made;
      made.data = block;
      made.context = {block, release};
      return made;
    }
    refused_.fetch_add(1, std::memory_order_relaxed);
  }
  DataPtr made = original_->allocate(bytes);
  if (made.context.get_deleter() == g_original_deleter) made.context.get_deleter() = release;
  return made;
}

bool ArenaAllocator::is_simple_data_ptr(const DataPtr& pointer) const {
  return original_->is_simple_data_ptr(pointer);
}

Deleter ArenaAllocator::raw_deleter() const { return release; }

void ArenaAllocator::copy_data(void* to, const void* from, size_t bytes) const {
  original_->copy_data(to, from, bytes);
}

int32_t ArenaAllocator::await(size_t bytes) {
  if (is_left_) return 0;
  const std::lock_guard lock(mutex_);
  ++awaited_[bytes];
  g_serves = true;
  return ++total_;
}

int32_t ArenaAllocator::forget(size_t bytes) {
  if (is_left_) return 0;
  const std::lock_guard lock(mutex_);
  const auto found = awaited_.find(bytes);
  if (found == awaited_.end()) return total_;
  if (--found->second == 0) awaited_.erase(found);
  g_serves = --total_ > 0;
  return total_;
}

void ArenaAllocator::leave_to_torch() {
  is_left_ = true;
  g_serves = false;
}

bool ArenaAllocator::is_awaited(size_t bytes) {
  const std::lock_guard lock(mutex_);
  return awaited_.contains(bytes);
}

}  // namespace rueda::torch
