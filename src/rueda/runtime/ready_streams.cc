#include "rueda/runtime/ready_streams.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "rueda/backend/cuda_event.h"

namespace rueda::runtime {
namespace {

// CU_STREAM_PER_THREAD: on the engine's thread its handle means another stream.
bool is_per_thread(const void* stream) { return reinterpret_cast<uintptr_t>(stream) == 2; }

}  // namespace

Status ReadyStreams::accept(Tensor& tensor) {
  ReadyStream& ready = tensor.ready_stream;
  if (!ready.is_given || devices_ == nullptr) return Status::ok();
  if (Status refused = check(tensor.memory.device, ready.handle); !refused.is_ok()) return refused;
  if (!is_per_thread(ready.handle)) return Status::ok();
  Result<std::shared_ptr<cuda::Event>> event = record(tensor.memory.device, ready.handle);
  if (!event.is_ok()) return event.status();
  tensor.mark_ready(std::move(event));
  return Status::ok();
}

Status ReadyStreams::accept(const Tensor& described, void* stream) {
  if (!described.ready_stream.is_given || devices_ == nullptr) return Status::ok();
  if (is_per_thread(stream))
    return {Code::kInvalidArgument,
            "a prepared operation cannot follow the per-thread default stream of CUDA; submit it, or use "
            "another stream."};
  return check(described.memory.device, stream);
}

void ReadyStreams::mark(Tensor& tensor, bool is_due) {
  ReadyStream& ready = tensor.ready_stream;
  if (!ready.is_given || ready.is_marked) return;
  const int32_t device = tensor.memory.device;
  auto known = std::ranges::find_if(
      marks_, [&](const Mark& mark) { return mark.device == device && mark.stream == ready.handle; });
  if (known == marks_.end()) {
    marks_.push_back({.device = device, .stream = ready.handle, .event = record(device, ready.handle)});
    known = std::prev(marks_.end());
  }
  const bool is_captured = !known->event.is_ok() && known->event.status().code == Code::kUnsupported;
  if (is_due || !is_captured) tensor.mark_ready(known->event);
}

// Most programs wait on the stream that they gave, where nothing is to be done. An event is recorded for
// others.
class ReadyStreams::End final : public backend::DeviceEvent {
 public:
  End(ReadyStreams& streams, const Tensor& tensor)
      : streams_(streams), device_(tensor.memory.device), stream_(tensor.ready_stream.handle) {
    if (tensor.ready_stream.event != nullptr) end_ = end_at(tensor.ready_stream.event);
  }

  [[nodiscard]] Status make_stream_wait(void* stream) override {
    if (stream == stream_ && !is_per_thread(stream)) return Status::ok();
    const Result<std::shared_ptr<backend::CudaEvent>> end = recorded();
    return end.is_ok() ? end.value()->make_stream_wait(stream) : end.status();
  }
  [[nodiscard]] std::optional<Status> outcome() override {
    const Result<std::shared_ptr<backend::CudaEvent>> end = recorded();
    return end.is_ok() ? end.value()->outcome() : end.status();
  }
  [[nodiscard]] std::optional<Status> wait(std::optional<Deadline> deadline) override {
    const Result<std::shared_ptr<backend::CudaEvent>> end = recorded();
    return end.is_ok() ? end.value()->wait(deadline) : end.status();
  }

 private:
  static std::shared_ptr<backend::CudaEvent> end_at(std::shared_ptr<cuda::Event> event) {
    return std::make_shared<backend::CudaEvent>(std::vector{std::move(event)});
  }
  Result<std::shared_ptr<backend::CudaEvent>> recorded() {
    const std::lock_guard lock(mutex_);
    if (end_ != nullptr) return end_;
    Result<std::shared_ptr<cuda::Event>> event = streams_.record(device_, stream_);
    if (!event.is_ok()) return event.status();
    return end_ = end_at(std::move(event).value());
  }

  ReadyStreams& streams_;
  const int32_t device_;
  void* const stream_;
  std::mutex mutex_;
  std::shared_ptr<backend::CudaEvent> end_;
};

std::shared_ptr<backend::DeviceEvent> ReadyStreams::end_of(const Tensor& tensor) {
  return std::make_shared<End>(*this, tensor);
}

Status ReadyStreams::check(int32_t device, void* stream) const {
  const Result<std::shared_ptr<const cuda::Device>> opened = devices_->get(device);
  if (!opened.is_ok()) return opened.status();
  return opened.value()->check_own_stream(static_cast<cuda::CUstream>(stream));
}

Result<std::shared_ptr<cuda::Event>> ReadyStreams::take_event(int32_t device) {
  if (devices_ == nullptr) return Status(Code::kUnavailable, "this process has no CUDA devices.");
  const std::lock_guard lock(mutex_);
  auto pool = pools_.find(device);
  if (pool == pools_.end()) {
    Result<std::shared_ptr<const cuda::Device>> opened = devices_->get(device);
    if (!opened.is_ok()) return opened.status();
    pool = pools_.try_emplace(device, std::move(opened).value()).first;
  }
  return pool->second.take();
}

Result<std::shared_ptr<cuda::Event>> ReadyStreams::record(int32_t device, void* stream) {
  Result<std::shared_ptr<cuda::Event>> event = take_event(device);
  if (!event.is_ok()) return event;
  const Status recorded = event.value()->record(static_cast<cuda::CUstream>(stream));
  if (!recorded.is_ok()) return recorded;
  return event;
}

}  // namespace rueda::runtime
