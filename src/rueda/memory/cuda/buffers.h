// Memory of a device, and pinned memory of the host, which devices copy from and to at full speed and without
// waiting. Owned; freed by any thread. Whoever frees it knows that the device no longer uses it.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "rueda/base/status.h"
#include "rueda/memory/cuda/device.h"

namespace rueda::cuda {

// What both own: memory, and the function of the driver that frees it.
class Buffer {
 public:
  Buffer() = default;
  ~Buffer() { free(); }
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept;

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] size_t bytes() const { return bytes_; }

 protected:
  using Free = CUresult (*)(const Driver& driver, void* data);
  Buffer(std::shared_ptr<const Device> device, void* data, size_t bytes, Free how)
      : device_(std::move(device)), how_(how), data_(static_cast<std::byte*>(data)), bytes_(bytes) {}
  void* give_up();

 private:
  void free();
  std::shared_ptr<const Device> device_;
  Free how_ = nullptr;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

class DeviceBuffer : public Buffer {  // data() is an address of the device
 public:
  // kUnavailable: the device has no memory left. bytes > 0.
  static Result<DeviceBuffer> allocate(std::shared_ptr<const Device> device, size_t bytes);
  // Takes what release() has given away.
  static DeviceBuffer adopt(std::shared_ptr<const Device> device, void* data);
  DeviceBuffer() = default;
  void* release() { return give_up(); }  // nobody owns the memory then

 private:
  DeviceBuffer(std::shared_ptr<const Device> device, void* data, size_t bytes);
};

class PinnedBuffer : public Buffer {
 public:
  // Pinned for all devices of this process. kUnavailable: no memory can be pinned. bytes > 0.
  static Result<PinnedBuffer> allocate(std::shared_ptr<const Device> device, size_t bytes);
  PinnedBuffer() = default;

 private:
  PinnedBuffer(std::shared_ptr<const Device> device, void* data, size_t bytes);
};

}  // namespace rueda::cuda
