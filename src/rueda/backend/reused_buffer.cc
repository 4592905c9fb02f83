#include "rueda/backend/reused_buffer.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <string>

namespace rueda::backend {
namespace {
constexpr size_t kPage = 4096;
constexpr size_t kHugePage = 2 << 20;  // saves TLB misses in every pass over the buffer
}  // namespace

Status ReusedBuffer::resize(size_t need) {
  memory_.reset();
  bytes_ = 0;
  // Powers of two from one page on. They are also multiples of the alignment, as aligned_alloc requires.
  const size_t bytes = std::bit_ceil(std::max(need, kPage));
  const size_t alignment = bytes >= kHugePage ? kHugePage : kPage;
  auto* fresh = static_cast<std::byte*>(std::aligned_alloc(alignment, bytes));
  if (fresh == nullptr) {
    return {Code::kUnavailable,
            "no memory for a buffer of " + std::to_string(bytes) +
                " bytes; lower RUEDA_FUSION_THRESHOLD or use a machine with more memory."};
  }
  if (alignment == kHugePage) (void)::madvise(fresh, bytes, MADV_HUGEPAGE);  // only a hint
  memory_.reset(fresh);
  bytes_ = bytes;
  return Status::ok();
}

// Counts the calls in a row that need less than a quarter.
bool ReusedBuffer::is_long_too_large(size_t need) {
  if (need >= bytes_ / 4) {
    modest_ = 0;
    return false;
  }
  largest_ = modest_ == 0 ? need : std::max(largest_, need);
  if (++modest_ < kShrinkAfter) return false;
  modest_ = 0;
  return true;
}

Result<std::byte*> ReusedBuffer::reserve(size_t bytes) {
  const bool shrinks = is_long_too_large(bytes);
  if (shrinks || bytes > bytes_ || memory_ == nullptr)
    if (Status status = resize(shrinks ? largest_ : bytes); !status.is_ok()) return status;
  return memory_.get();
}

void ReusedBuffer::pass() {
  if (is_long_too_large(0)) (void)resize(largest_);  // if it fails, so will the call that needs the memory
}

}  // namespace rueda::backend
