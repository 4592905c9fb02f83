// The device event of a call that was launched on CUDA devices: it happens when all work recorded for the
// call has ended. Any thread. Every backend for CUDA memory uses it.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "rueda/backend/device_event.h"
#include "rueda/memory/cuda/events.h"

namespace rueda::backend {

class CudaEvent final : public DeviceEvent {
 public:
  using OtherDevices = std::vector<std::shared_ptr<const cuda::Device>>;

  // Recorded events, one for each device that works for the call; at least one. others: further devices on
  // which it has tensors. The handle of a default stream names no device, so it stands for those of all.
  explicit CudaEvent(std::vector<std::shared_ptr<cuda::Event>> events, OtherDevices others = {})
      : events_(std::move(events)), others_(std::move(others)) {}

  [[nodiscard]] Status make_stream_wait(void* stream) override;
  [[nodiscard]] std::optional<Status> outcome() override;
  [[nodiscard]] std::optional<Status> wait(std::optional<Deadline> deadline) override;

  // The call has failed, although the device may still work for it: when that has ended, the event happens
  // with this failure, and no stream is made to wait any more. No effect if the event has happened.
  void condemn(const Status& why);
  // The event has happened with this failure, whatever the device says, unless it happened before: the
  // backend was aborted, or knows that the device is lost. Nothing may use the buffers of the call any more.
  void fail(const Status& why);

 private:
  std::optional<Status> outcome_locked();
  // On the context of the device.
  [[nodiscard]] Status wait_on(const cuda::Device& device, cuda::CUstream stream, const cuda::Event& event);
  std::vector<std::shared_ptr<cuda::Event>> events_;
  OtherDevices others_;
  std::mutex mutex_;
  std::optional<Status> outcome_;   // once known
  std::optional<Status> sentence_;  // of condemn()
};

}  // namespace rueda::backend
