// When tensors in device memory may be read, where the caller names a stream of the framework and no event:
// after what is enqueued there. The engine records the event itself, one for all tensors that are marked
// together and became ready on the same stream. If it does so later, the tensor waits for more than it must.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "rueda/base/status.h"
#include "rueda/memory/cuda/events.h"
#include "rueda/runtime/operation.h"

namespace rueda::runtime {

class ReadyStreams {
 public:
  explicit ReadyStreams(cuda::Devices* devices) : devices_(devices) {}  // null: there are none

  // Any thread, before the tensor is submitted: refuses a stream that is not the device's, or is captured. A
  // stream that only this thread can name is marked at once.
  Status accept(Tensor& tensor);
  // The same for an operation that was prepared, and brings this stream.
  Status accept(const Tensor& described, void* stream);

  // Engine thread. Tensors that are marked from now on share events.
  void begin() { marks_.clear(); }
  // Records the event of the tensor if it has none. While the program captures a graph that prevents it, the
  // tensor stays as it is; is_due: then it has none for good, and the reason.
  void mark(Tensor& tensor, bool is_due = false);

  // For an operation that has ended at once: its result is there when its input is ready. Any thread. The
  // event must not outlive this object.
  [[nodiscard]] std::shared_ptr<backend::DeviceEvent> end_of(const Tensor& tensor);

 private:
  class End;
  struct Mark {
    int32_t device = -1;
    void* stream = nullptr;
    Result<std::shared_ptr<cuda::Event>> event;
  };
  [[nodiscard]] Status check(int32_t device, void* stream) const;
  Result<std::shared_ptr<cuda::Event>> record(int32_t device, void* stream);
  Result<std::shared_ptr<cuda::Event>> take_event(int32_t device);

  cuda::Devices* const devices_;
  std::mutex mutex_;
  std::map<int32_t, cuda::EventPool> pools_;
  std::vector<Mark> marks_;
};

}  // namespace rueda::runtime
