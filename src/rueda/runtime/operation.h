// What one handle stands for: an operation, its tensors, and the memory that the engine allocates for them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rueda/backend/device_event.h"
#include "rueda/base/clock.h"
#include "rueda/base/status.h"
#include "rueda/base/types.h"
#include "rueda/control/messages.h"
#include "rueda/control/plans.h"
#include "rueda/memory/cuda/device.h"
#include "rueda/memory/cuda/events.h"

namespace rueda::runtime {

struct Release {
  std::shared_ptr<const cuda::Device> device;  // null: memory of the host
  void operator()(void* memory) const;
};
// Memory of the host or of a device.
using OwnedMemory = std::unique_ptr<void, Release>;
OwnedMemory allocate_host(size_t bytes);  // 64-byte aligned, at least one byte; null if there is no memory
// The same on a device; fails if it has no memory left.
Result<OwnedMemory> allocate_on(const std::shared_ptr<const cuda::Device>& device, size_t bytes);

// The stream of a framework in whose order the input of a tensor becomes ready, until it is marked: until an
// event was recorded there, or cannot be.
struct ReadyStream {
  bool is_given = false;
  bool is_marked = false;
  void* handle = nullptr;
  std::shared_ptr<cuda::Event> event = nullptr;
  Status outcome = {};  // of recording it
};

// One tensor of an operation: what was asked, where its bytes are, and what came of it.
struct Tensor {
  control::TensorRequest request;
  const void* input = nullptr;
  void* output = nullptr;  // the caller's, or allocated.get()
  // Of the caller's output, as far as this rank knows; 0: as many as of the input.
  size_t output_bytes = 0;
  bool has_feedback = true;         // a residual belongs to its name
  bool takes_wire_setting = false;  // the caller leaves the wire type to RUEDA_WIRE
  bool is_only_read = false;        // the output is the input, and its values stay: the root of a broadcast
  Memory memory;                    // of both; request.memory says of which kind it is
  ReadyStream ready_stream;         // memory.ready follows from it, if it is given
  OwnedMemory allocated;            // of that kind; set if the caller gave no output
  std::vector<int64_t> result_shape;
  std::vector<int32_t> received_splits;  // alltoall: rows from each member
  bool is_started = false;               // engine thread only: a call uses the memory
  control::PlanPlace planned;            // the same: of the last run, for an operation that starts again

  [[nodiscard]] int64_t count() const;  // elements of the input
  // Elements of one row: the product of all dimensions but the first.
  [[nodiscard]] int64_t row_count() const;
  [[nodiscard]] size_t bytes() const;  // of the input
  void mark_ready(const Result<std::shared_ptr<cuda::Event>>& event);
  // The device has been told to wait, or never will be.
  void forget_ready();
};

struct Callback {
  void (*function)(void*) = nullptr;
  void* argument = nullptr;
};

// What one handle stands for: a tensor, a group of tensors, which completes as a whole, or a change of
// the process sets.
struct Operation {
  Operation() = default;
  ~Operation();  // memory that it owns on a device is kept until no device uses it
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  int64_t handle = 0;
  int64_t prepared = 0;         // the number under which it was prepared; 0: it was submitted
  std::vector<Tensor> tensors;  // none: a change of the process sets
  std::optional<control::SetChange> set_change;
  size_t open = 0;  // engine thread only: tensors not yet finished
  Nanos submitted = 0;
  bool is_waited_for = false;  // the next call of the thread that submitted it was wait()
  Status status;               // the first failure; read after is_done
  Rank last_joined = -1;       // join
  int64_t tag = 0;             // join
  int32_t set_id = 0;          // of the process set that was added
  // The engine is done with it: it has ended, or its calls were launched on a device.
  std::atomic<bool> is_done{false};
  // Another operation in flight uses memory of this one, or two tensors of this one share memory.
  std::atomic<bool> shares_memory{false};
  // Of the launched calls, each once; read after is_done. Empty for host memory.
  std::vector<std::shared_ptr<backend::DeviceEvent>> events;
  // From when on a thread waits for it, as far as known; 0 = none waits. Polling counts as waiting
  // after a while.
  mutable std::atomic<Nanos> wanted_from{0};
  [[nodiscard]] bool is_wanted(Nanos now) const {
    const Nanos from = wanted_from.load(std::memory_order_relaxed);
    return from != 0 && from <= now;
  }
  std::vector<Callback> callbacks;  // under the mutex of Operations; called once, after is_done

  // For an operation that starts again: as it was before the first start.
  void reset();
  [[nodiscard]] const std::string& name() const;  // of the first tensor, or of the change
  // The first failure so far, on the device too. Only after is_done.
  [[nodiscard]] Status outcome() const;
  // That failure of one of its events, as a sentence about the operation.
  [[nodiscard]] Status failed_on_device(const Status& why) const;
};

}  // namespace rueda::runtime
