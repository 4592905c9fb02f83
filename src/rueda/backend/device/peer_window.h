// What a rank has on its GPU for exchanges from GPU to GPU: a stream, kernels, events, and a window of memory
// that the other ranks of the host map (CUDA IPC), with slots for sections of tensors. Engine thread only.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "rueda/backend/backend.h"
#include "rueda/backend/device/peer_terms.h"
#include "rueda/backend/device/staging_buffers.h"
#include "rueda/memory/cuda/device.h"
#include "rueda/memory/cuda/events.h"
#include "rueda/memory/cuda/ipc.h"
#include "rueda/memory/cuda/kernels.h"
#include "rueda/memory/cuda/streams.h"

namespace rueda::backend {

class PeerWindow {
 public:
  // One section comes, one is added, one leaves.
  static constexpr size_t kSlots = 3;

  // section_bytes: wanted; less if the device has less memory left. local_rank: chooses the GPU of a rank
  // that has joined.
  PeerWindow(std::shared_ptr<cuda::Devices> devices, size_t section_bytes, Rank local_rank)
      : devices_(std::move(devices)), section_bytes_(section_bytes), local_rank_(local_rank) {}
  ~PeerWindow() {
    if (slots_ != nullptr && !slots_->are_free()) abandon();
  }
  PeerWindow(const PeerWindow&) = delete;
  PeerWindow& operator=(const PeerWindow&) = delete;

  // Which GPU this rank has: at first that of the call's tensors. uses_slots: makes the window, or says why
  // not.
  void describe(PeerRow& row, const Call& call, bool uses_slots);
  // The device may still use it.
  void abandon() { memory_.abandon(); }

  // ---- once there is a window ----
  [[nodiscard]] StagingBuffers* slots() { return slots_.get(); }
  [[nodiscard]] std::byte* data() const { return memory_.data(); }
  [[nodiscard]] const std::shared_ptr<const cuda::Device>& device() const { return device_; }
  [[nodiscard]] cuda::Stream& stream() { return *stream_; }
  [[nodiscard]] cuda::Kernels& kernels() { return *kernels_; }
  // An event after everything that is enqueued.
  Result<std::shared_ptr<cuda::Event>> record();

 private:
  Status open();
  std::string make();

  std::shared_ptr<cuda::Devices> devices_;
  size_t section_bytes_;
  Rank local_rank_;
  std::shared_ptr<const cuda::Device> device_;  // once it is used
  std::unique_ptr<cuda::Stream> stream_;
  std::unique_ptr<cuda::Kernels> kernels_;
  std::unique_ptr<cuda::EventPool> events_;
  cuda::ExportedMemory memory_;
  std::string why_not_;  // there is no window
  size_t slot_bytes_ = 0;
  std::unique_ptr<StagingBuffers> slots_;
};

}  // namespace rueda::backend
