// Pinned memory of the host through which sections pass, kept between calls. A buffer that was copied from is
// free when the copy has ended. Engine thread only.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "rueda/base/status.h"
#include "rueda/memory/cuda/buffers.h"
#include "rueda/memory/cuda/events.h"

namespace rueda::backend {

struct StagingBuffer {
  cuda::PinnedBuffer memory;
  bool is_taken = false;
  std::vector<std::shared_ptr<cuda::Event>> leaving;  // copies from it to devices

  [[nodiscard]] bool is_free() const;
};

class StagingBuffers {
 public:
  // kept_bytes: a larger buffer is given back after its call.
  StagingBuffers(size_t count, size_t kept_bytes) : kept_bytes_(kept_bytes) {
    for (size_t i = 0; i < count; ++i) buffers_.push_back(std::make_unique<StagingBuffer>());
  }
  ~StagingBuffers();
  StagingBuffers(const StagingBuffers&) = delete;
  StagingBuffers& operator=(const StagingBuffers&) = delete;

  // Null: all are in use. Fails if no memory can be pinned.
  Result<StagingBuffer*> take(const std::shared_ptr<const cuda::Device>& device, size_t bytes);
  [[nodiscard]] bool has_free() const;

 private:
  size_t kept_bytes_;
  std::vector<std::unique_ptr<StagingBuffer>> buffers_;
};

}  // namespace rueda::backend
