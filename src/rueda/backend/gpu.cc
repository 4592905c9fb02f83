#include "rueda/backend/gpu.h"

#include <utility>

namespace rueda::backend {

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

Gpu::Gpu(std::unique_ptr<cuda::Stream> stream, std::unique_ptr<cuda::Kernels> kernels, Copies copies)
    : stream_(std::move(stream)),
      kernels_(std::move(kernels)),
      events_(stream_->device()),
      packing_(*stream_, *kernels_, copies) {}

}  // namespace rueda::backend
