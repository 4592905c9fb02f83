#include "rueda/memory/arena.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "rueda/base/memory_file.h"

namespace rueda::memory {
namespace {

size_t round_up(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

}  // namespace

size_t default_arena_bytes() {
  constexpr size_t kShareOfAddresses = 16;
  size_t bytes = static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
  rlimit addresses{};
  if (getrlimit(RLIMIT_AS, &addresses) == 0 && addresses.rlim_cur != RLIM_INFINITY)
    bytes = std::min<size_t>(bytes, addresses.rlim_cur / kShareOfAddresses);
  return std::min(bytes, max_file_bytes());
}

Result<std::unique_ptr<Arena>> Arena::create(size_t bytes) {
  Result<SharedMemory> memory = SharedMemory::create(round_up(std::max<size_t>(bytes, 1), kPage));
  if (!memory.is_ok()) {
    const bool is_smaller_possible = bytes > kPage && SharedMemory::create(kPage).is_ok();
    return Status(
        memory.status().code,
        memory.status().why + (is_smaller_possible ? " Set RUEDA_ARENA_BYTES to a smaller value." : ""));
  }
  return std::make_unique<Arena>(std::move(memory).value());
}

Arena::Arena(SharedMemory memory) : memory_(std::move(memory)) { add_free(0, memory_.bytes()); }

void* Arena::allocate(size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (bytes > memory_.bytes() || is_forked_child_) return nullptr;
  const size_t align = bytes >= kPageFrom ? kPage : kLine;
  const size_t wanted = round_up(std::max<size_t>(bytes, 1), align);
  const auto lost = [align](size_t offset) { return round_up(offset, align) - offset; };
  auto best = by_size_.lower_bound({wanted, 0});
  while (best != by_size_.end() && best->first - lost(best->second) < wanted) ++best;
  if (best == by_size_.end()) return nullptr;
  const auto [size, begin] = *best;
  const size_t at = round_up(begin, align);
  remove_free(free_.find(begin));
  if (at > begin) add_free(begin, at - begin);
  if (begin + size > at + wanted) add_free(at + wanted, begin + size - at - wanted);
  used_.emplace(at, wanted);
  used_bytes_ += wanted;
  return memory_.base() + at;
}

bool Arena::release(void* block) {
  const std::lock_guard lock(mutex_);
  if (!memory_.holds(block, 1)) return false;
  const auto found = used_.find(memory_.offset_of(block));
  if (found == used_.end()) return false;
  size_t begin = found->first, size = found->second;
  used_bytes_ -= size;
  used_.erase(found);
  const auto next = free_.lower_bound(begin);
  if (next != free_.end() && next->first == begin + size) {
    size += next->second;
    remove_free(next);
  }
  const auto after = free_.lower_bound(begin);
  if (after != free_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == begin) {
      begin = before->first;
      size += before->second;
      remove_free(before);
    }
  }
  add_free(begin, size);
  return true;
}

void Arena::trim() {
  const std::lock_guard lock(mutex_);
  if (is_forked_child_) return;
  for (const auto& [begin, size] : free_) {
    const size_t from = round_up(begin, kPage), to = (begin + size) / kPage * kPage;
    if (from < to) madvise(memory_.base() + from, to - from, MADV_REMOVE);
  }
}

// The copy is anonymous memory with the same layout, so the child only has to move it into place.
void Arena::before_fork() {
  mutex_.lock();
  if (used_.empty() || is_forked_child_) return;
  const auto& [last, size] = *used_.rbegin();
  copied_ = round_up(last + size, kPage);
  void* made =
      mmap(nullptr, copied_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  copy_ = made == MAP_FAILED ? nullptr : made;
  if (copy_ == nullptr) return;
  for (const auto& [begin, bytes] : used_)
    std::memcpy(static_cast<std::byte*>(copy_) + begin, memory_.base() + begin, bytes);
}

void Arena::after_fork_in_parent() {
  if (copy_ != nullptr) munmap(copy_, copied_);
  copy_ = nullptr;
  copied_ = 0;
  mutex_.unlock();
}

void Arena::after_fork_in_child() {
  constexpr int kInPlace = MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE;
  if (!is_forked_child_) {
    std::byte* const base = memory_.base();
    if (copy_ != nullptr) {
      mremap(copy_, copied_, copied_, MREMAP_MAYMOVE | MREMAP_FIXED, base);
    } else if (copied_ > 0) {
      // There is no memory for a copy. The child then sees its parent's later writes to pages that the child
      // has not written itself, but its own writes do not reach the parent.
      mmap(base, copied_, PROT_READ | PROT_WRITE, kInPlace, memory_.fd(), 0);
    }
    if (copied_ < memory_.bytes())
      mmap(base + copied_, memory_.bytes() - copied_, PROT_NONE, kInPlace | MAP_ANONYMOUS, -1, 0);
  }
  copy_ = nullptr;
  is_forked_child_ = true;
  mutex_.unlock();
}

size_t Arena::used_bytes() const {
  const std::lock_guard lock(mutex_);
  return used_bytes_;
}

void Arena::add_free(size_t begin, size_t bytes) {
  free_.emplace(begin, bytes);
  by_size_.emplace(bytes, begin);
}

void Arena::remove_free(std::map<size_t, size_t>::iterator range) {
  by_size_.erase({range->second, range->first});
  free_.erase(range);
}

}  // namespace rueda::memory
