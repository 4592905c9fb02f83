#include "rueda/backend/device/staging_buffers.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "rueda/base/check.h"
#include "rueda/base/keep.h"

namespace rueda::backend {
namespace {
constexpr size_t kLeastBytes = 64 << 10;

Status cannot_pin(const Status& why) {
  return {why.code, why.why +
                        " A rank that stages GPU tensors pins up to eight buffers of this size: set "
                        "RUEDA_STAGING_BYTES lower on rank 0, or allow the process more memory (the limit of "
                        "its container, ulimit -l)."};
}

}  // namespace

bool StagingBuffer::is_free() const {
  return !is_taken &&
         std::ranges::all_of(leaving, [](const auto& event) { return event->outcome().has_value(); });
}

StagingBuffers::StagingBuffers(std::byte* first, size_t slot_bytes, size_t count) : kept_bytes_(slot_bytes) {
  for (size_t i = 0; i < count; ++i) {
    buffers_.push_back(std::make_unique<StagingBuffer>());
    buffers_.back()->slot = first + i * slot_bytes;
  }
}

// A device that hangs may still use a buffer. That memory is then never freed.
StagingBuffers::~StagingBuffers() {
  for (std::unique_ptr<StagingBuffer>& buffer : buffers_)
    if (!buffer->is_free()) keep_until_exit(std::move(buffer));
}

bool StagingBuffers::are_free() const {
  return std::ranges::all_of(buffers_, [](const auto& buffer) { return buffer->is_free(); });
}

bool StagingBuffers::has_free() const {
  return std::ranges::any_of(buffers_, [](const auto& buffer) { return buffer->is_free(); });
}

Result<StagingBuffer*> StagingBuffers::take(const std::shared_ptr<const cuda::Device>& device, size_t bytes) {
  const auto found = std::ranges::find_if(buffers_, [](const auto& buffer) { return buffer->is_free(); });
  if (found == buffers_.end()) return nullptr;
  StagingBuffer& buffer = **found;
  buffer.leaving.clear();
  if (buffer.slot != nullptr) {
    RUEDA_CHECK(bytes <= kept_bytes_, "a section fits into its slot");
    buffer.is_taken = true;
    return &buffer;
  }
  const bool is_too_large = buffer.memory.bytes() > kept_bytes_ && bytes <= kept_bytes_;
  if (buffer.memory.bytes() < bytes || is_too_large || buffer.memory.data() == nullptr) {
    buffer.memory = cuda::PinnedBuffer();
    Result<cuda::PinnedBuffer> memory =
        cuda::PinnedBuffer::allocate(device, std::bit_ceil(std::max(bytes, kLeastBytes)));
    if (!memory.is_ok()) return cannot_pin(memory.status());
    buffer.memory = std::move(memory).value();
  }
  buffer.is_taken = true;
  return &buffer;
}

}  // namespace rueda::backend
