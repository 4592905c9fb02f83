#include "rueda/memory/cuda/events.h"

#include <utility>

namespace rueda::cuda {

std::optional<Status> outcome_of(const Device& device, CUevent event) {
  const ScopedContext current(device);
  if (!current.status().is_ok()) return current.status();
  const CUresult result = device.driver().cuEventQuery(event);
  if (result == CUDA_ERROR_NOT_READY) return std::nullopt;
  if (result == CUDA_ERROR_CAPTURED_EVENT || result == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
    return Status(Code::kUnsupported,
                  "its ready event belongs to a stream that is being captured into a CUDA graph, and a "
                  "collective cannot be captured; run it outside of the capture.");
  if (result == CUDA_ERROR_INVALID_HANDLE)
    return Status(Code::kInvalidArgument, "its ready event is not an event of CUDA in this process.");
  return device.driver().check(result, "finish the work of device " + std::to_string(device.ordinal()));
}

Result<std::unique_ptr<Event>> Event::create(std::shared_ptr<const Device> device) {
  std::unique_ptr<Event> event(new Event(std::move(device)));
  const Driver& driver = event->device_->driver();
  const ScopedContext current(*event->device_);
  if (!current.status().is_ok()) return current.status();
  if (Status s = driver.check(driver.cuEventCreate(&event->event_, kEventDisableTiming), "create an event");
      !s.is_ok())
    return s;
  return event;
}

Status Event::record(CUstream stream) const {
  const ScopedContext current(*device_);
  if (!current.status().is_ok()) return current.status();
  // An event that is recorded while its stream is captured would be a part of the graph. The program may
  // begin that at any moment.
  if (Status closed = device_->check_stream(stream); !closed.is_ok()) return closed;
  const Driver& driver = device_->driver();
  if (Status s = driver.check(driver.cuEventRecord(event_, stream), "record an event"); !s.is_ok()) return s;
  return device_->check_stream(stream);
}

Event::~Event() {
  if (event_ == nullptr) return;
  const ScopedContext current(*device_);
  if (current.status().is_ok()) (void)device_->driver().cuEventDestroy(event_);
}

EventPool::EventPool(std::shared_ptr<const Device> device)
    : device_(std::move(device)), shelf_(std::make_shared<Shelf>()) {}

Result<std::shared_ptr<Event>> EventPool::take() {
  std::unique_ptr<Event> event;
  {
    const std::lock_guard lock(shelf_->mutex);
    if (!shelf_->events.empty()) {
      event = std::move(shelf_->events.back());
      shelf_->events.pop_back();
    }
  }
  if (event == nullptr) {
    Result<std::unique_ptr<Event>> made = Event::create(device_);
    if (!made.is_ok()) return made.status();
    event = std::move(made).value();
  }
  return std::shared_ptr<Event>(event.release(), [shelf = std::weak_ptr(shelf_)](Event* used) {
    std::unique_ptr<Event> owned(used);
    const std::shared_ptr<Shelf> home = shelf.lock();
    if (home == nullptr) return;
    const std::lock_guard lock(home->mutex);
    home->events.push_back(std::move(owned));
  });
}

}  // namespace rueda::cuda
