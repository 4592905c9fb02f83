// What every backend for CUDA memory checks before it uses a tensor of a call.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "rueda/backend/backend.h"
#include "rueda/memory/cuda/device.h"

namespace rueda::backend {

// Checks the tensors of one call. The device of the last one is current on this thread until the object dies,
// and is made current only where it changes: there may be hundreds of tensors before a launch.
class TensorChecks {
 public:
  // Whether the tensor lies on the device that its call names, and its ready event can be waited for. A
  // failure has kUnavailable: this process alone sees it, and another code might count as the same refusal on
  // every rank.
  Status check(const std::shared_ptr<const cuda::Device>& device, const Segment& segment);

 private:
  Status find_fault(const Segment& segment);
  Status check_memory(const void* memory);

  std::shared_ptr<const cuda::Device> device_;
  std::optional<cuda::ScopedContext> current_;  // that of device_
  std::vector<cuda::MemoryRange> checked_;      // allocations of device_
  void* ready_ = nullptr;                       // the last event that can be waited for
};

// Checks all of them, on this rank alone: a library would fail on the device, or take part in what is being
// captured. culprit: the segment that cannot be used, if one cannot.
Status check_tensors(cuda::Devices& devices, std::span<const Segment> segments,
                     std::optional<size_t>& culprit);

}  // namespace rueda::backend
