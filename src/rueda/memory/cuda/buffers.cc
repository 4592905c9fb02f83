#include "rueda/memory/cuda/buffers.h"

#include <utility>

#include "rueda/memory/cuda/deferred_frees.h"

namespace rueda::cuda {
namespace {

constexpr Nanos kPatience = 2 * kSecond;  // for memory that is being freed elsewhere

}  // namespace

Result<DeviceBuffer> DeviceBuffer::allocate(std::shared_ptr<const Device> device, size_t bytes) {
  const Driver& driver = device->driver();
  const ScopedContext current(*device);
  if (!current.status().is_ok()) return current.status();
  CUdeviceptr address = 0;
  CUresult result = driver.cuMemAlloc(&address, bytes);
  if (result == CUDA_ERROR_OUT_OF_MEMORY && wait_for_frees(Deadline::after(kPatience)))
    result = driver.cuMemAlloc(&address, bytes);
  const Status made = driver.check(
      result, "allocate " + std::to_string(bytes) + " bytes on device " + std::to_string(device->ordinal()));
  if (!made.is_ok()) return made;
  DeviceBuffer buffer;
  buffer.device_ = std::move(device);
  buffer.data_ = static_cast<std::byte*>(pointer_to(address));
  buffer.bytes_ = bytes;
  return buffer;
}

DeviceBuffer DeviceBuffer::adopt(std::shared_ptr<const Device> device, void* data) {
  DeviceBuffer buffer;
  buffer.device_ = std::move(device);
  buffer.data_ = static_cast<std::byte*>(data);
  return buffer;
}

void* DeviceBuffer::release() {
  bytes_ = 0;
  return std::exchange(data_, nullptr);
}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept { *this = std::move(other); }

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  if (this == &other) return *this;
  free();
  device_ = std::move(other.device_);
  data_ = std::exchange(other.data_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

void DeviceBuffer::free() {
  if (data_ == nullptr) return;
  const auto free_it = [device = device_, data = std::exchange(data_, nullptr)] {
    const ScopedContext current(*device);
    if (current.status().is_ok()) (void)device->driver().cuMemFree(address_of(data));
  };
  if (!free_elsewhere(free_it)) free_it();
}

Result<PinnedBuffer> PinnedBuffer::allocate(std::shared_ptr<const Device> device, size_t bytes) {
  const Driver& driver = device->driver();
  const ScopedContext current(*device);
  if (!current.status().is_ok()) return current.status();
  void* address = nullptr;
  const Status made = driver.check(driver.cuMemHostAlloc(&address, bytes, kHostAllocPortable),
                                   "pin " + std::to_string(bytes) + " bytes of host memory");
  if (!made.is_ok()) return made;
  PinnedBuffer buffer;
  buffer.device_ = std::move(device);
  buffer.data_ = static_cast<std::byte*>(address);
  buffer.bytes_ = bytes;
  return buffer;
}

PinnedBuffer::PinnedBuffer(PinnedBuffer&& other) noexcept { *this = std::move(other); }

PinnedBuffer& PinnedBuffer::operator=(PinnedBuffer&& other) noexcept {
  if (this == &other) return *this;
  free();
  device_ = std::move(other.device_);
  data_ = std::exchange(other.data_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

void PinnedBuffer::free() {
  if (data_ == nullptr) return;
  const auto free_it = [device = device_, data = std::exchange(data_, nullptr)] {
    const ScopedContext current(*device);
    if (current.status().is_ok()) (void)device->driver().cuMemFreeHost(data);
  };
  if (!free_elsewhere(free_it)) free_it();
}

}  // namespace rueda::cuda
