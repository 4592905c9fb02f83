// Memory of a device for the calls of one stream, kept between them. It grows when a call needs more; what
// was too small is kept until the stream no longer uses it. Engine thread only.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "rueda/backend/cuda_event.h"
#include "rueda/memory/cuda/buffers.h"

namespace rueda::backend {

class DeviceScratch {
 public:
  static constexpr size_t kUnit = 2 << 20;  // what CUDA allocates at once

  // At least so many bytes, with undefined contents. kUnavailable: the device has no memory left.
  Status reserve(const std::shared_ptr<const cuda::Device>& device, size_t bytes);
  [[nodiscard]] std::byte* data() const { return buffer_.data(); }
  [[nodiscard]] size_t bytes() const { return buffer_.bytes(); }
  // Everything that was enqueued until now has ended when `event` happens.
  void enqueued_until(const std::shared_ptr<CudaEvent>& event);
  // Frees the memory if no call has used it.
  void give_up_unused() {
    if (!is_used_) buffer_ = {};
  }

 private:
  struct Retired {
    cuda::DeviceBuffer buffer;
    std::shared_ptr<CudaEvent> until;  // null: the stream may be given more that uses it
  };
  cuda::DeviceBuffer buffer_;
  std::vector<Retired> retired_;
  bool is_used_ = false;
};

}  // namespace rueda::backend
