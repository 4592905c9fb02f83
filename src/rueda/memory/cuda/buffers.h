// Memory of a device, and pinned memory of the host, which devices copy from and to at full speed and without
// waiting. Owned; freed by any thread. Whoever frees it knows that the device no longer uses it.
#pragma once

#include <cstddef>
#include <memory>

#include "rueda/base/status.h"
#include "rueda/memory/cuda/device.h"

namespace rueda::cuda {

class DeviceBuffer {
 public:
  // kUnavailable: the device has no memory left. bytes > 0.
  static Result<DeviceBuffer> allocate(std::shared_ptr<const Device> device, size_t bytes);
  // Takes what release() has given away.
  static DeviceBuffer adopt(std::shared_ptr<const Device> device, void* data);
  DeviceBuffer() = default;
  ~DeviceBuffer() { free(); }
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;

  [[nodiscard]] std::byte* data() const { return data_; }  // an address of the device
  [[nodiscard]] size_t bytes() const { return bytes_; }
  void* release();  // nobody owns the memory then

 private:
  void free();
  std::shared_ptr<const Device> device_;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

class PinnedBuffer {
 public:
  // Pinned for all devices of this process. kUnavailable: no memory can be pinned. bytes > 0.
  static Result<PinnedBuffer> allocate(std::shared_ptr<const Device> device, size_t bytes);
  PinnedBuffer() = default;
  ~PinnedBuffer() { free(); }
  PinnedBuffer(PinnedBuffer&& other) noexcept;
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept;

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] size_t bytes() const { return bytes_; }

 private:
  void free();
  std::shared_ptr<const Device> device_;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace rueda::cuda
