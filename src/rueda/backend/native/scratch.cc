#include "rueda/backend/native/scratch.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <string>

namespace rueda::backend {
namespace {
constexpr size_t kPage = 4096;
constexpr size_t kHugePage = 2 << 20;  // saves TLB misses in every pass over the buffer
}  // namespace

Status Scratch::resize(size_t bytes) {
  memory_.reset();
  bytes_ = 0;
  const size_t alignment = bytes >= kHugePage ? kHugePage : kPage;
  auto* fresh = static_cast<std::byte*>(std::aligned_alloc(alignment, bytes));
  if (fresh == nullptr) {
    return {Code::kUnavailable,
            "no memory for " + std::to_string(bytes) +
                " bytes of scratch: lower RUEDA_FUSION_THRESHOLD or give the job more memory"};
  }
  if (alignment == kHugePage) (void)::madvise(fresh, bytes, MADV_HUGEPAGE);  // only a hint
  memory_.reset(fresh);
  bytes_ = bytes;
  return Status::ok();
}

Result<std::byte*> Scratch::reserve(size_t bytes) {
  // Powers of two from one page on. They are also multiples of the alignment, as aligned_alloc requires.
  const auto rounded = [](size_t need) { return std::bit_ceil(std::max(need, kPage)); };
  if (bytes * 4 < bytes_) {
    largest_ = modest_ == 0 ? bytes : std::max(largest_, bytes);
    if (++modest_ >= kShrinkAfter) {
      modest_ = 0;
      if (Status status = resize(rounded(largest_)); !status.is_ok()) return status;
    }
  } else {
    modest_ = 0;
  }
  if (bytes > bytes_)
    if (Status status = resize(rounded(bytes)); !status.is_ok()) return status;
  return memory_.get();
}

}  // namespace rueda::backend
