#include "rueda/runtime/operation.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "rueda/memory/cuda/buffers.h"

namespace rueda::runtime {

void Release::operator()(void* memory) const {
  if (device == nullptr) return std::free(memory);
  cuda::DeviceBuffer::adopt(device, memory);  // and free it
}

OwnedMemory allocate_host(size_t bytes) {
  const size_t rounded = (std::max<size_t>(bytes, 1) + 63) / 64 * 64;
  return OwnedMemory(std::aligned_alloc(64, rounded));
}

Result<OwnedMemory> allocate_on(const std::shared_ptr<const cuda::Device>& device, size_t bytes) {
  Result<cuda::DeviceBuffer> made = cuda::DeviceBuffer::allocate(device, std::max<size_t>(bytes, 1));
  if (!made.is_ok()) return made.status();
  return OwnedMemory(made.value().release(), Release{.device = device});
}

Operation::~Operation() {
  const bool owns_device_memory = std::ranges::any_of(tensors, [](const Tensor& tensor) {
    return tensor.allocated != nullptr && tensor.allocated.get_deleter().device != nullptr;
  });
  if (!owns_device_memory) return;
  for (const std::shared_ptr<backend::DeviceEvent>& event : events) (void)event->wait(std::nullopt);
}

int64_t Tensor::count() const {
  int64_t product = 1;
  for (const int64_t dim : request.shape) product *= dim;
  return product;
}

int64_t Tensor::row_count() const {
  int64_t product = 1;
  for (size_t i = 1; i < request.shape.size(); ++i) product *= request.shape[i];
  return product;
}

size_t Tensor::bytes() const { return static_cast<size_t>(count()) * size_of(request.dtype); }

void Tensor::mark_ready(const Result<std::shared_ptr<cuda::Event>>& event) {
  ready_stream.is_marked = true;
  ready_stream.outcome = event.is_ok() ? Status::ok() : event.status();
  if (event.is_ok()) ready_stream.event = event.value();
  memory.ready = event.is_ok() ? ready_stream.event->handle() : nullptr;
}

void Tensor::forget_ready() {
  if (!ready_stream.is_given) return;
  ready_stream = {.is_given = true};
  memory.ready = nullptr;
}

void Operation::reset() {
  for (Tensor& tensor : tensors) {
    tensor.forget_ready();
    tensor.request.shares_memory = false;
    tensor.request.after.clear();
    tensor.allocated.reset();
    tensor.result_shape.clear();
    tensor.received_splits.clear();
    tensor.is_started = false;
  }
  status = Status::ok();
  last_joined = -1;
  tag = 0;
  is_done.store(false, std::memory_order_relaxed);
  shares_memory.store(false, std::memory_order_relaxed);
  events.clear();
  wanted_from.store(0, std::memory_order_relaxed);
  callbacks.clear();
}

const std::string& Operation::name() const {
  return set_change ? set_change->name : tensors.front().request.name;
}

Status Operation::outcome() const {
  if (!status.is_ok()) return status;
  for (const std::shared_ptr<backend::DeviceEvent>& event : events) {
    const std::optional<Status> happened = event->outcome();
    if (happened && !happened->is_ok()) return failed_on_device(*happened);
  }
  return Status::ok();
}

Status Operation::failed_on_device(const Status& why) const {
  return {why.code, "Operation " + name() + " failed on its device: " + why.why};
}

}  // namespace rueda::runtime
