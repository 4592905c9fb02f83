#include "rueda/backend/cuda_tensor.h"

#include <optional>

#include "rueda/memory/cuda/events.h"

namespace rueda::backend {
namespace {

Status find_fault(const cuda::Device& device, const Segment& segment) {
  if (Status s = device.check_memory(segment.input); !s.is_ok()) return s;
  if (segment.output != segment.input)
    if (Status s = device.check_memory(segment.output); !s.is_ok()) return s;
  if (segment.memory.ready == nullptr) return Status::ok();
  // A stream that waited for an event that is being captured would become a part of the graph.
  const std::optional<Status> known =
      cuda::outcome_of(device, static_cast<cuda::CUevent>(segment.memory.ready));
  return known.value_or(Status::ok());
}

}  // namespace

Status check_tensor(const cuda::Device& device, const Segment& segment) {
  const Status fault = find_fault(device, segment);
  return fault.is_ok() ? fault : Status{Code::kUnavailable, fault.why};
}

}  // namespace rueda::backend
