// A stream of our own on one device. It does not wait for the legacy default stream, and has the highest
// priority, because a short copy that waits for a long kernel delays all ranks. Engine thread only, except
// where a member says otherwise.
#pragma once

#include <functional>
#include <memory>

#include "rueda/base/status.h"
#include "rueda/memory/cuda/device.h"
#include "rueda/memory/cuda/events.h"

namespace rueda::cuda {

class Stream {
 public:
  static Result<std::unique_ptr<Stream>> create(std::shared_ptr<const Device> device);
  ~Stream();  // what is enqueued still runs
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  [[nodiscard]] CUstream handle() const { return stream_; }
  [[nodiscard]] const std::shared_ptr<const Device>& device() const { return device_; }

  // Everything enqueued from now on runs after the event: one of ours, or a framework's by its handle, which
  // may belong to another device.
  Status wait(CUevent event);
  Status record(const Event& event);
  // Both may be memory of the host or of any device. Memory of the host must be pinned.
  Status copy(void* to, const void* from, size_t bytes);
  // Calls the function on a thread of CUDA after everything enqueued so far; it must not call CUDA. If the
  // device fails, the function may never be called, and is kept until the process ends.
  Status call(std::function<void()> function);

 private:
  explicit Stream(std::shared_ptr<const Device> device) : device_(std::move(device)) {}
  std::shared_ptr<const Device> device_;
  CUstream stream_ = nullptr;
};

}  // namespace rueda::cuda
