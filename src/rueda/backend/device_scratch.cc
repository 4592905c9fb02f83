#include "rueda/backend/device_scratch.h"

namespace rueda::backend {

Status DeviceScratch::reserve(const std::shared_ptr<const cuda::Device>& device, size_t bytes) {
  std::erase_if(retired_, [](const Retired& one) { return one.until != nullptr && one.until->outcome(); });
  if (bytes <= buffer_.bytes()) return Status::ok();
  Result<cuda::DeviceBuffer> made = cuda::DeviceBuffer::allocate(device, (bytes + kUnit - 1) / kUnit * kUnit);
  if (!made.is_ok())
    return {made.status().code, made.status().why + " A smaller RUEDA_FUSION_THRESHOLD needs less."};
  if (buffer_.bytes() > 0) retired_.push_back({.buffer = std::move(buffer_), .until = nullptr});
  buffer_ = std::move(made).value();
  return Status::ok();
}

void DeviceScratch::enqueued_until(const std::shared_ptr<CudaEvent>& event) {
  is_used_ = true;
  for (Retired& one : retired_)
    if (one.until == nullptr) one.until = event;
}

}  // namespace rueda::backend
