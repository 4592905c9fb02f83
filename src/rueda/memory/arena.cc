#include "rueda/memory/arena.h"

#include <algorithm>
#include <utility>

namespace rueda::memory {
namespace {

size_t round_up(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

}  // namespace

Result<std::unique_ptr<Arena>> Arena::create(size_t bytes) {
  Result<SharedMemory> memory = SharedMemory::create(round_up(bytes, kPage));
  if (!memory.is_ok()) return memory.status();
  return std::make_unique<Arena>(std::move(memory).value());
}

Arena::Arena(SharedMemory memory) : memory_(std::move(memory)) { free_.emplace(0, memory_.bytes()); }

void* Arena::allocate(size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (bytes > memory_.bytes()) return nullptr;
  const size_t align = bytes >= kPageFrom ? kPage : kLine;
  const size_t wanted = round_up(std::max<size_t>(bytes, 1), align);
  auto best = free_.end();
  for (auto range = free_.begin(); range != free_.end(); ++range) {
    const size_t lost = round_up(range->first, align) - range->first;
    if (range->second < lost || range->second - lost < wanted) continue;
    if (best == free_.end() || range->second < best->second) best = range;
  }
  if (best == free_.end()) return nullptr;
  const auto [begin, size] = *best;
  const size_t at = round_up(begin, align);
  free_.erase(best);
  if (at > begin) free_.emplace(begin, at - begin);
  if (begin + size > at + wanted) free_.emplace(at + wanted, begin + size - at - wanted);
  used_.emplace(at, wanted);
  used_bytes_ += wanted;
  return memory_.base() + at;
}

bool Arena::release(void* block) {
  const std::lock_guard lock(mutex_);
  if (!memory_.holds(block, 1)) return false;
  const auto found = used_.find(memory_.offset_of(block));
  if (found == used_.end()) return false;
  auto [begin, size] = *found;
  used_bytes_ -= size;
  used_.erase(found);
  const auto next = free_.lower_bound(begin);
  if (next != free_.end() && next->first == begin + size) {
    size += next->second;
    free_.erase(next);
  }
  const auto after = free_.lower_bound(begin);
  if (after != free_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == begin) {
      before->second += size;
      return true;
    }
  }
  free_.emplace(begin, size);
  return true;
}

size_t Arena::used_bytes() const {
  const std::lock_guard lock(mutex_);
  return used_bytes_;
}

}  // namespace rueda::memory
