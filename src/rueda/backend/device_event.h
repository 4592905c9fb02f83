// What happens on a device when a call that a backend has launched there ends. A backend for device memory
// returns one with each call (Done::event); the tensors of a fused call share it.
//
// Any thread, several at once, and none of them holds a lock of the engine. A thread may have another device
// current, or none: a function selects the device that it needs, and restores what it found. The engine drops
// all references before it destroys the backend, so a backend may keep its events in a pool. It may drop them
// before the event has happened, too.
//
// Every event happens: when the call ends on the device, or with a failure when the backend notices that the
// device is lost, or when Backend::abort() is called.
#pragma once

#include <optional>

#include "rueda/base/clock.h"
#include "rueda/base/status.h"

namespace rueda::backend {

class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;

  // What is enqueued on the stream from now on runs after the event. Returns at once. stream: a handle of the
  // device's runtime, as the C ABI takes it. Fails if the call is known to have failed, or the device does
  // not take the stream.
  [[nodiscard]] virtual Status make_stream_wait(void* stream) = 0;
  // How the call ended on the device; empty until then.
  [[nodiscard]] virtual std::optional<Status> outcome() = 0;
  // Waits on the host until the event has happened or the deadline has passed; then as outcome().
  [[nodiscard]] virtual std::optional<Status> wait(std::optional<Deadline> deadline) = 0;
};

}  // namespace rueda::backend
