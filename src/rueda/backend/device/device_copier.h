// The way between one device and pinned memory of the host: a stream in each direction, kernels that gather
// many small tensors before one copy, and the events that say how far the copies are. Engine thread only.
//
// Gathering needs some memory of the device. If there is less than wanted, smaller parts are gathered; if
// there is none, or the driver does not compile kernels, each tensor is copied by itself.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "rueda/base/status.h"
#include "rueda/memory/cuda/buffers.h"
#include "rueda/memory/cuda/events.h"
#include "rueda/memory/cuda/kernels.h"
#include "rueda/memory/cuda/streams.h"

namespace rueda::backend {

class DeviceCopier {
 public:
  enum class Way : uint8_t { kToHost, kToDevice };

  // wake: any thread; wakes the engine thread. gather_bytes: memory of the device wanted for each direction.
  static Result<std::unique_ptr<DeviceCopier>> open(std::shared_ptr<const cuda::Device> device,
                                                    std::function<void()> wake, size_t gather_bytes);

  // Copies all runs, which have places in `pinned`, in the order of the direction's stream. The event happens
  // when they have arrived. Runs ascend by place and leave no gaps.
  Result<std::shared_ptr<cuda::Event>> copy(Way way, std::span<const cuda::TensorRun> runs,
                                            std::byte* pinned);
  // Wakes the engine thread when everything enqueued so far in this direction has ended.
  Status wake_after(Way way);
  // Wakes the engine thread when all of these events of frameworks have happened.
  Status wake_after(std::span<const cuda::CUevent> events);

  [[nodiscard]] const std::shared_ptr<const cuda::Device>& device() const { return device_; }

 private:
  struct Direction {
    std::unique_ptr<cuda::Stream> stream;
    cuda::DeviceBuffer gathered;
    bool has_asked = false;  // for the buffer
    std::shared_ptr<std::atomic<bool>> will_wake = std::make_shared<std::atomic<bool>>(false);
  };
  DeviceCopier(std::shared_ptr<const cuda::Device> device, std::function<void()> wake, size_t gather_bytes)
      : device_(device), wake_(std::move(wake)), gather_bytes_(gather_bytes), events_(std::move(device)) {}

  Direction& of(Way way) { return directions_[static_cast<size_t>(way)]; }
  void reserve(Direction& direction);
  Status copy_each(Direction& direction, Way way, std::span<const cuda::TensorRun> runs, std::byte* pinned);
  Status copy_gathered(Direction& direction, Way way, std::span<const cuda::TensorRun> runs,
                       std::byte* pinned);

  std::shared_ptr<const cuda::Device> device_;
  std::function<void()> wake_;
  size_t gather_bytes_;
  cuda::EventPool events_;
  std::unique_ptr<cuda::Kernels> kernels_;  // null if the driver does not compile them
  Direction directions_[2];
  std::unique_ptr<cuda::Stream> watch_;  // waits for the events of frameworks
};

// The copiers of the devices that tensors were on so far, shared by the backends that stage. Engine thread
// only.
class DeviceCopiers {
 public:
  DeviceCopiers(std::shared_ptr<cuda::Devices> devices, std::function<void()> wake, size_t gather_bytes)
      : devices_(std::move(devices)), wake_(std::move(wake)), gather_bytes_(gather_bytes) {}
  Result<DeviceCopier*> get(int32_t device);

 private:
  std::shared_ptr<cuda::Devices> devices_;
  std::function<void()> wake_;
  size_t gather_bytes_;
  std::map<int32_t, std::unique_ptr<DeviceCopier>> copiers_;
};

// Splits runs into parts of at most `bytes` bytes each, cutting runs where necessary. The places in each part
// begin at 0; its own place is GatheredPart::begin. Pure.
struct GatheredPart {
  size_t begin = 0, bytes = 0;
  std::vector<cuda::TensorRun> runs;
};
std::vector<GatheredPart> split_runs(std::span<const cuda::TensorRun> runs, size_t bytes);

}  // namespace rueda::backend
