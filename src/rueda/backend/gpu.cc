#include "rueda/backend/gpu.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace rueda::backend {
namespace {

// The devices of these tensors but one.
Result<CudaEvent::OtherDevices> other_devices(cuda::Devices& devices, std::span<const Segment> segments,
                                              int32_t but) {
  CudaEvent::OtherDevices others;
  for (const Segment& one : segments) {
    const int32_t ordinal = one.memory.device;
    const bool has_memory = one.input != nullptr || one.output != nullptr;
    const auto is_known = [&](const auto& device) { return device->ordinal() == ordinal; };
    if (!has_memory || ordinal == but || std::ranges::any_of(others, is_known)) continue;
    auto device = devices.get(ordinal);
    if (!device.is_ok()) return device.status();
    others.push_back(std::move(device).value());
  }
  return others;
}

}  // namespace

Result<std::unique_ptr<Gpu>> Gpu::open(cuda::Devices& devices, int32_t ordinal, Copies copies) {
  const auto device = devices.get(ordinal);
  if (!device.is_ok()) return device.status();
  const cuda::ScopedContext context(*device.value());
  if (!context.status().is_ok()) return context.status();
  auto stream = cuda::Stream::create(device.value());
  if (!stream.is_ok()) return stream.status();
  auto kernels = cuda::Kernels::load(device.value());
  if (!kernels.is_ok()) return kernels.status();
  return std::unique_ptr<Gpu>(new Gpu(std::move(stream).value(), std::move(kernels).value(), copies));
}

Result<std::unique_ptr<Gpu>> Gpu::open(cuda::Devices& devices, std::span<const Segment> segments,
                                       Rank local_rank, Copies copies) {
  const auto has_tensor = [](const Segment& one) { return one.input != nullptr || one.output != nullptr; };
  const auto tensor = std::ranges::find_if(segments, has_tensor);
  const Result<int32_t> ordinal = tensor != segments.end()
                                      ? Result<int32_t>(tensor->memory.device)
                                      : cuda::usual_ordinal(devices.driver(), local_rank);
  if (!ordinal.is_ok()) return ordinal.status();
  return open(devices, ordinal.value(), copies);
}

Gpu::Gpu(std::unique_ptr<cuda::Stream> stream, std::unique_ptr<cuda::Kernels> kernels, Copies copies)
    : stream_(std::move(stream)),
      kernels_(std::move(kernels)),
      events_(stream_->device()),
      packing_(*stream_, *kernels_, copies) {}

Result<std::shared_ptr<cuda::Event>> Gpu::record() {
  Result<std::shared_ptr<cuda::Event>> event = events_.take();
  if (!event.is_ok()) return event.status();
  if (const Status status = stream_->record(*event.value()); !status.is_ok()) return status;
  return event;
}

Result<std::shared_ptr<CudaEvent>> Gpu::launched(cuda::Devices& devices, std::span<const Segment> segments) {
  Result<std::shared_ptr<cuda::Event>> event = record();
  if (!event.is_ok()) return event.status();
  auto others = other_devices(devices, segments, device()->ordinal());
  if (!others.is_ok()) return others.status();
  auto launched =
      std::make_shared<CudaEvent>(std::vector{std::move(event).value()}, std::move(others).value());
  packing_.enqueued_until(launched);
  return launched;
}

}  // namespace rueda::backend
