#include "rueda/backend/nccl/gpu.h"

#include <cstdlib>
#include <string_view>
#include <utility>

namespace rueda::nccl {
namespace {

std::string hex_of(const cuda::CUuuid& uuid) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : uuid.bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

}  // namespace

Result<std::unique_ptr<Gpu>> Gpu::open(cuda::Devices& devices, int32_t ordinal) {
  const auto device = devices.get(ordinal);
  if (!device.is_ok()) return device.status();
  const cuda::ScopedContext context(*device.value());
  if (!context.status().is_ok()) return context.status();
  auto stream = cuda::Stream::create(device.value());
  if (!stream.is_ok()) return stream.status();
  auto kernels = cuda::Kernels::load(device.value());
  if (!kernels.is_ok()) return kernels.status();
  return std::unique_ptr<Gpu>(new Gpu(std::move(stream).value(), std::move(kernels).value()));
}

Gpu::Gpu(std::unique_ptr<cuda::Stream> stream, std::unique_ptr<cuda::Kernels> kernels)
    : stream_(std::move(stream)),
      kernels_(std::move(kernels)),
      events_(stream_->device()),
      packing_(*stream_, *kernels_) {}

std::string Gpu::identity() const {
  // NCCL's own variables: the first allows ranks to share a GPU, the second replaces the name of the host.
  const char* const shares = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  const char* const host = std::getenv("NCCL_HOSTID");
  if (shares != nullptr && std::string_view(shares) == "1") return {};
  return (host == nullptr ? std::string() : std::string(host)) + "|" + hex_of(device()->uuid());
}

}  // namespace rueda::nccl
