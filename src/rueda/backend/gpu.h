// What a rank has on its GPU for NCCL, or for an MPI that takes CUDA memory: the stream on which everything
// runs, kernels, events, buffers. It is made when the rank first uses a GPU, not during init, because
// programs choose their GPU after init, and a process that has initialised CUDA can no longer choose. Engine
// thread only.
#pragma once

#include <memory>
#include <span>

#include "rueda/backend/cuda_event.h"
#include "rueda/backend/device_packing.h"
#include "rueda/memory/cuda/device.h"
#include "rueda/memory/cuda/driver.h"
#include "rueda/memory/cuda/events.h"
#include "rueda/memory/cuda/kernels.h"
#include "rueda/memory/cuda/streams.h"

namespace rueda::backend {

class Gpu {
 public:
  // The GPU on which these tensors lie, or without tensors the usual one of this local rank.
  static Result<std::unique_ptr<Gpu>> open(cuda::Devices& devices, std::span<const Segment> segments,
                                           Rank local_rank, Copies copies = Copies::kNeeded);

  [[nodiscard]] const std::shared_ptr<const cuda::Device>& device() const { return stream_->device(); }
  [[nodiscard]] cuda::Stream& stream() { return *stream_; }
  [[nodiscard]] cuda::Kernels& kernels() { return *kernels_; }
  [[nodiscard]] cuda::EventPool& events() { return events_; }
  [[nodiscard]] DevicePacking& packing() { return packing_; }

  // An event after everything that is enqueued.
  Result<std::shared_ptr<cuda::Event>> record();
  // The event of a call of which everything is enqueued. Until it happens, packing leaves its buffers alone.
  Result<std::shared_ptr<CudaEvent>> launched(cuda::Devices& devices, std::span<const Segment> segments);

 private:
  static Result<std::unique_ptr<Gpu>> open(cuda::Devices& devices, int32_t ordinal, Copies copies);
  Gpu(std::unique_ptr<cuda::Stream> stream, std::unique_ptr<cuda::Kernels> kernels, Copies copies);
  std::unique_ptr<cuda::Stream> stream_;
  std::unique_ptr<cuda::Kernels> kernels_;
  cuda::EventPool events_;
  DevicePacking packing_;
};

}  // namespace rueda::backend
