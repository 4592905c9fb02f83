#include "rueda/backend/device/peer_window.h"

#include <algorithm>

namespace rueda::backend {
namespace {

// A window with smaller slots is not worth its host syncs.
constexpr size_t kLeastSectionBytes = 256 << 10;

}  // namespace

void PeerWindow::describe(PeerRow& row, const Call& call, bool uses_slots) {
  if (device_ == nullptr) {
    const auto tensor =
        std::ranges::find_if(call.segments, [](const Segment& one) { return one.memory.device >= 0; });
    Result<int32_t> ordinal(tensor != call.segments.end() ? tensor->memory.device : -1);
    if (ordinal.value() < 0) {
      if (!uses_slots) return;  // it has joined, and has no GPU yet
      ordinal = cuda::usual_ordinal(devices_->driver(), local_rank_);
    }
    if (!ordinal.is_ok()) return row.set_why_not(ordinal.status().why);
    const auto device = devices_->get(ordinal.value());
    if (!device.is_ok()) return row.set_why_not(device.status().why);
    device_ = device.value();
  }
  row.set_gpu(device_->uuid(), device_->name());
  if (!uses_slots) return;
  if (slots_ == nullptr && why_not_.empty()) {
    const Status opened = open();
    why_not_ = opened.is_ok() ? make() : opened.why;
  }
  if (!why_not_.empty()) return row.set_why_not(why_not_);
  row.slot_bytes = static_cast<int64_t>(slot_bytes_);
  row.window = memory_.handle();
}

Status PeerWindow::open() {
  auto stream = cuda::Stream::create(device_);
  if (!stream.is_ok()) return stream.status();
  auto kernels = cuda::Kernels::load(device_);
  if (!kernels.is_ok()) return kernels.status();
  stream_ = std::move(stream).value();
  kernels_ = std::move(kernels).value();
  events_ = std::make_unique<cuda::EventPool>(device_);
  return Status::ok();
}

// A device that is nearly full gives smaller slots. Returns why there is no window; empty: there is one.
std::string PeerWindow::make() {
  const size_t least = std::min(kLeastSectionBytes, section_bytes_);
  std::string why;
  for (size_t section = section_bytes_; section >= least; section /= 2) {
    slot_bytes_ = slot_bytes_for(section);
    Result<cuda::ExportedMemory> window = cuda::ExportedMemory::create(device_, kSlots * slot_bytes_);
    if (window.is_ok()) {
      memory_ = std::move(window).value();
      slots_ = std::make_unique<StagingBuffers>(memory_.data(), slot_bytes_, kSlots);
      return {};
    }
    why = window.status().why;
    if (window.status().code == Code::kUnsupported) break;  // memory of no size can be exported
  }
  return why;
}

Result<std::shared_ptr<cuda::Event>> PeerWindow::record() {
  Result<std::shared_ptr<cuda::Event>> event = events_->take();
  if (!event.is_ok()) return event.status();
  if (const Status status = stream_->record(*event.value()); !status.is_ok()) return status;
  return event;
}

}  // namespace rueda::backend
