// Memory through which sections pass: pinned memory of the host, kept between calls, or slots of a window. A
// buffer that was copied from is free when the copy has ended. Engine thread only.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "rueda/base/status.h"
#include "rueda/memory/cuda/buffers.h"
#include "rueda/memory/cuda/events.h"

namespace rueda::backend {

struct StagingBuffer {
  cuda::PinnedBuffer memory;  // empty: a slot
  std::byte* slot = nullptr;
  bool is_taken = false;
  std::vector<std::shared_ptr<cuda::Event>> leaving;  // copies from it to devices

  [[nodiscard]] bool is_free() const;
  [[nodiscard]] std::byte* data() const { return slot != nullptr ? slot : memory.data(); }
};

class StagingBuffers {
 public:
  // kept_bytes: a larger buffer is given back after its call.
  StagingBuffers(size_t count, size_t kept_bytes) : kept_bytes_(kept_bytes) {
    for (size_t i = 0; i < count; ++i) buffers_.push_back(std::make_unique<StagingBuffer>());
  }
  // Slots in memory that others own; no section is larger.
  StagingBuffers(std::byte* first, size_t slot_bytes, size_t count);
  ~StagingBuffers();
  StagingBuffers(const StagingBuffers&) = delete;
  StagingBuffers& operator=(const StagingBuffers&) = delete;

  // Null: all are in use. Fails if no memory can be pinned.
  Result<StagingBuffer*> take(const std::shared_ptr<const cuda::Device>& device, size_t bytes);
  [[nodiscard]] bool has_free() const;
  [[nodiscard]] bool are_free() const;  // all of them

 private:
  size_t kept_bytes_;
  std::vector<std::unique_ptr<StagingBuffer>> buffers_;
};

}  // namespace rueda::backend
