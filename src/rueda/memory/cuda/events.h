// Events of CUDA: those of a framework by their handle, and our own from a pool, because creating one for
// each call costs microseconds. Any thread.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "rueda/base/status.h"
#include "rueda/memory/cuda/device.h"

namespace rueda::cuda {

// How what the event stands for has ended; empty until then. An event that was never recorded has ended. A
// failure may come from any earlier work of the device.
std::optional<Status> outcome_of(const Device& device, CUevent event);

class Event {
 public:
  static Result<std::unique_ptr<Event>> create(std::shared_ptr<const Device> device);
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  [[nodiscard]] CUevent handle() const { return event_; }
  [[nodiscard]] const Device& device() const { return *device_; }
  [[nodiscard]] std::optional<Status> outcome() const { return outcome_of(*device_, event_); }
  // On a stream of the event's device, of the framework or our own, which is not being captured.
  Status record(CUstream stream) const;

 private:
  explicit Event(std::shared_ptr<const Device> device) : device_(std::move(device)) {}
  std::shared_ptr<const Device> device_;
  CUevent event_ = nullptr;
};

// Hands out events of one device; each returns when its last owner drops it, also after the pool is gone.
class EventPool {
 public:
  explicit EventPool(std::shared_ptr<const Device> device);
  Result<std::shared_ptr<Event>> take();

 private:
  struct Shelf {
    std::mutex mutex;
    std::vector<std::unique_ptr<Event>> events;  // nobody uses them
  };
  std::shared_ptr<const Device> device_;
  std::shared_ptr<Shelf> shelf_;
};

}  // namespace rueda::cuda
