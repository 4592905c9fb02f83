#include "rueda/backend/cuda_tensor.h"

#include "rueda/memory/cuda/events.h"

namespace rueda::backend {

Status TensorChecks::check(const std::shared_ptr<const cuda::Device>& device, const Segment& segment) {
  if (device != device_) {
    current_.reset();
    device_ = device;
    current_.emplace(*device_);
  }
  const Status fault = current_->status().is_ok() ? find_fault(segment) : current_->status();
  return fault.is_ok() ? fault : Status{Code::kUnavailable, fault.why};
}

Status TensorChecks::find_fault(const Segment& segment) {
  if (Status s = device_->check_memory(segment.input); !s.is_ok()) return s;
  if (segment.output != segment.input)
    if (Status s = device_->check_memory(segment.output); !s.is_ok()) return s;
  void* const ready = segment.memory.ready;
  if (ready == nullptr || ready == ready_) return Status::ok();
  // A stream that waited for an event that is being captured would become a part of the graph.
  const std::optional<Status> known = cuda::outcome_of(*device_, static_cast<cuda::CUevent>(ready));
  if (known && !known->is_ok()) return *known;
  ready_ = ready;
  return Status::ok();
}

}  // namespace rueda::backend
