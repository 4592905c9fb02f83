#include "rueda/backend/device/device_copier.h"

#include <algorithm>
#include <utility>

#include "rueda/base/log.h"

namespace rueda::backend {
namespace {

// From this size on, a copy of its own keeps the bus as busy as a gathered one.
constexpr size_t kAloneBytes = 256 << 10;
// Less is not worth a kernel.
constexpr size_t kLeastGathered = 64 << 10;

size_t total_bytes(std::span<const cuda::TensorRun> runs) {
  return runs.empty() ? 0 : runs.back().offset + runs.back().bytes - runs.front().offset;
}

}  // namespace

Result<std::unique_ptr<DeviceCopier>> DeviceCopier::open(std::shared_ptr<const cuda::Device> device,
                                                         std::function<void()> wake, size_t gather_bytes) {
  std::unique_ptr<DeviceCopier> copier(new DeviceCopier(device, std::move(wake), gather_bytes));
  for (Direction& direction : copier->directions_) {
    Result<std::unique_ptr<cuda::Stream>> stream = cuda::Stream::create(device);
    if (!stream.is_ok()) return stream.status();
    direction.stream = std::move(stream).value();
  }
  Result<std::unique_ptr<cuda::Stream>> watch = cuda::Stream::create(device);
  if (!watch.is_ok()) return watch.status();
  copier->watch_ = std::move(watch).value();
  Result<std::unique_ptr<cuda::Kernels>> kernels = cuda::Kernels::load(device);
  if (kernels.is_ok()) {
    copier->kernels_ = std::move(kernels).value();
  } else {
    RUEDA_LOG_ONCE(kWarning,
                   "small GPU tensors are copied to the host one by one, which is slower than "
                   "packed by a kernel: " +
                       kernels.status().why +
                       " The driver compiles kernels with libnvidia-ptxjitcompiler.so.1, unless "
                       "CUDA_DISABLE_PTX_JIT is set.");
  }
  return copier;
}

Result<std::shared_ptr<cuda::Event>> DeviceCopier::copy(Way way, std::span<const cuda::TensorRun> runs,
                                                        std::byte* pinned) {
  Direction& direction = of(way);
  const bool is_worth_gathering =
      kernels_ != nullptr && runs.size() > 1 && total_bytes(runs) / runs.size() < kAloneBytes;
  if (is_worth_gathering) reserve(direction);
  const Status copied = is_worth_gathering && direction.gathered.data() != nullptr
                            ? copy_gathered(direction, way, runs, pinned)
                            : copy_each(direction, way, runs, pinned);
  if (!copied.is_ok()) return copied;
  Result<std::shared_ptr<cuda::Event>> event = events_.take();
  if (!event.is_ok()) return event;
  if (Status s = direction.stream->record(*event.value()); !s.is_ok()) return s;
  return event;
}

// Asks once: a device that is full stays full while a model trains.
void DeviceCopier::reserve(Direction& direction) {
  if (std::exchange(direction.has_asked, true)) return;
  for (size_t bytes = gather_bytes_; bytes >= kLeastGathered; bytes /= 2) {
    Result<cuda::DeviceBuffer> buffer = cuda::DeviceBuffer::allocate(device_, bytes);
    if (!buffer.is_ok()) continue;
    direction.gathered = std::move(buffer).value();
    return;
  }
}

Status DeviceCopier::copy_each(Direction& direction, Way way, std::span<const cuda::TensorRun> runs,
                               std::byte* pinned) {
  for (const cuda::TensorRun& run : runs) {
    std::byte* const host = pinned + run.offset;
    const Status status = way == Way::kToHost ? direction.stream->copy(host, run.tensor, run.bytes)
                                              : direction.stream->copy(run.tensor, host, run.bytes);
    if (!status.is_ok()) return status;
  }
  return Status::ok();
}

// The stream keeps the order: a part is gathered only after the part before it has left the buffer.
Status DeviceCopier::copy_gathered(Direction& direction, Way way, std::span<const cuda::TensorRun> runs,
                                   std::byte* pinned) {
  cuda::Stream& stream = *direction.stream;
  std::byte* const buffer = direction.gathered.data();
  for (const GatheredPart& part : split_runs(runs, direction.gathered.bytes())) {
    std::byte* const host = pinned + part.begin;
    Status status = way == Way::kToHost ? kernels_->pack(stream, part.runs, buffer)
                                        : stream.copy(buffer, host, part.bytes);
    if (status.is_ok())
      status = way == Way::kToHost ? stream.copy(host, buffer, part.bytes)
                                   : kernels_->unpack(stream, part.runs, buffer);
    if (!status.is_ok()) return status;
  }
  return Status::ok();
}

Status DeviceCopier::wake_after(Way way) {
  Direction& direction = of(way);
  // If it will wake for what was enqueued earlier, the engine asks again then.
  if (direction.will_wake->exchange(true)) return Status::ok();
  Status status = direction.stream->call([will_wake = direction.will_wake, wake = wake_] {
    will_wake->store(false);
    wake();
  });
  if (!status.is_ok()) direction.will_wake->store(false);
  return status;
}

Status DeviceCopier::wake_after(std::span<const cuda::CUevent> events) {
  for (const cuda::CUevent event : events)
    if (Status s = watch_->wait(event); !s.is_ok()) return s;
  return watch_->call(wake_);
}

Result<DeviceCopier*> DeviceCopiers::get(int32_t device) {
  if (const auto found = copiers_.find(device); found != copiers_.end()) return found->second.get();
  Result<std::shared_ptr<const cuda::Device>> opened = devices_->get(device);
  if (!opened.is_ok()) return opened.status();
  Result<std::unique_ptr<DeviceCopier>> copier =
      DeviceCopier::open(std::move(opened).value(), wake_, gather_bytes_);
  if (!copier.is_ok()) return copier.status();
  return copiers_.emplace(device, std::move(copier).value()).first->second.get();
}

std::vector<GatheredPart> split_runs(std::span<const cuda::TensorRun> runs, size_t bytes) {
  std::vector<GatheredPart> parts;
  for (const cuda::TensorRun& run : runs) {
    for (size_t done = 0; done < run.bytes;) {
      if (parts.empty() || parts.back().bytes == bytes)
        parts.push_back({.begin = run.offset + done, .bytes = 0, .runs = {}});
      GatheredPart& part = parts.back();
      const size_t size = std::min(run.bytes - done, bytes - part.bytes);
      part.runs.push_back({.tensor = run.tensor + done, .offset = part.bytes, .bytes = size});
      part.bytes += size;
      done += size;
    }
  }
  return parts;
}

}  // namespace rueda::backend
