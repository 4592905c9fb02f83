#include "rueda/backend/cuda_tensor.h"

#include <algorithm>

#include "rueda/memory/cuda/events.h"

namespace rueda::backend {
namespace {

constexpr size_t kMostChecked = 32;  // allocations that are remembered during one call

}  // namespace

Status TensorChecks::check(const std::shared_ptr<const cuda::Device>& device, const Segment& segment) {
  if (device != device_) {
    current_.reset();
    checked_.clear();
    device_ = device;
    current_.emplace(*device_);
  }
  const Status fault = current_->status().is_ok() ? find_fault(segment) : current_->status();
  return fault.is_ok() ? fault : Status{Code::kUnavailable, fault.why};
}

Status TensorChecks::find_fault(const Segment& segment) {
  if (Status s = check_memory(segment.input); !s.is_ok()) return s;
  if (segment.output != segment.input)
    if (Status s = check_memory(segment.output); !s.is_ok()) return s;
  if (segment.memory.checked != nullptr) return *segment.memory.checked;  // and then it has an event, or none
  void* const ready = segment.memory.ready;
  if (ready == nullptr || ready == ready_) return Status::ok();
  // A stream that waited for an event that is being captured would become a part of the graph.
  const std::optional<Status> known = cuda::outcome_of(*device_, static_cast<cuda::CUevent>(ready));
  if (known && !known->is_ok()) return *known;
  ready_ = ready;
  return Status::ok();
}

Status TensorChecks::check_memory(const void* memory) {
  const auto has_it = [memory](const cuda::MemoryRange& known) { return known.contains(memory); };
  if (memory == nullptr || std::ranges::any_of(checked_, has_it)) return Status::ok();
  cuda::MemoryRange allocation;
  const bool is_kept = checked_.size() < kMostChecked;
  if (Status s = device_->check_memory(memory, is_kept ? &allocation : nullptr); !s.is_ok()) return s;
  if (is_kept) checked_.push_back(allocation);
  return Status::ok();
}

Status check_tensors(cuda::Devices& devices, std::span<const Segment> segments,
                     std::optional<size_t>& culprit) {
  TensorChecks tensors;
  for (size_t i = 0; i < segments.size(); ++i) {
    if (segments[i].memory.device < 0) continue;  // a rank that has joined
    culprit = i;
    const auto device = devices.get(segments[i].memory.device);
    if (!device.is_ok()) return {Code::kUnavailable, device.status().why};
    if (const Status fault = tensors.check(device.value(), segments[i]); !fault.is_ok()) return fault;
  }
  culprit.reset();
  return Status::ok();
}

}  // namespace rueda::backend
