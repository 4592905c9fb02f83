#include "rueda/memory/cuda/buffers.h"

#include "rueda/memory/cuda/deferred_frees.h"

namespace rueda::cuda {
namespace {

constexpr Nanos kPatience = 2 * kSecond;  // for memory that is being freed elsewhere

CUresult free_of_device(const Driver& driver, void* data) { return driver.cuMemFree(address_of(data)); }
CUresult free_pinned(const Driver& driver, void* data) { return driver.cuMemFreeHost(data); }

}  // namespace

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this == &other) return *this;
  free();
  device_ = std::move(other.device_);
  how_ = other.how_;
  data_ = std::exchange(other.data_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

void* Buffer::give_up() {
  bytes_ = 0;
  return std::exchange(data_, nullptr);
}

void Buffer::free() {
  const size_t bytes = bytes_;
  void* const mine = give_up();
  if (mine == nullptr) return;
  const auto free_it = [device = device_, how = how_, mine] {
    const ScopedContext current(*device);
    if (current.status().is_ok()) (void)how(device->driver(), mine);
  };
  if (!free_elsewhere(free_it, bytes)) free_it();
}

DeviceBuffer::DeviceBuffer(std::shared_ptr<const Device> device, void* data, size_t bytes)
    : Buffer(std::move(device), data, bytes, &free_of_device) {}

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
  return DeviceBuffer(std::move(device), pointer_to(address), bytes);
}

DeviceBuffer DeviceBuffer::adopt(std::shared_ptr<const Device> device, void* data) {
  return {std::move(device), data, 0};
}

PinnedBuffer::PinnedBuffer(std::shared_ptr<const Device> device, void* data, size_t bytes)
    : Buffer(std::move(device), data, bytes, &free_pinned) {}

Result<PinnedBuffer> PinnedBuffer::allocate(std::shared_ptr<const Device> device, size_t bytes) {
  const Driver& driver = device->driver();
  const ScopedContext current(*device);
  if (!current.status().is_ok()) return current.status();
  void* address = nullptr;
  const Status made = driver.check(driver.cuMemHostAlloc(&address, bytes, kHostAllocPortable),
                                   "pin " + std::to_string(bytes) + " bytes of host memory");
  if (!made.is_ok()) return made;
  return PinnedBuffer(std::move(device), address, bytes);
}

}  // namespace rueda::cuda
