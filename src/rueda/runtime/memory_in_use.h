// The memory that operations in flight read and write. Two tensors conflict if they share memory and at least
// one of them writes it. The one that is submitted second says so in its request, so that no transfer
// contains both; if the first belongs to another process set, the request names it, and the coordinator
// orders it first. Each rank then starts the second only when the first has ended, on its device too. So the
// result is that of one after the other. Not thread-safe: Operations calls it under its mutex.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "rueda/backend/device_event.h"
#include "rueda/runtime/range_table.h"

namespace rueda::runtime {

struct Operation;

using DeviceEvents = std::vector<std::shared_ptr<backend::DeviceEvent>>;

class MemoryInUse {
 public:
  // A tensor of this operation is in flight from now on. Marks it, and those with which it shares memory
  // (Operation::shares_memory, TensorRequest::shares_memory and after).
  void add(const std::shared_ptr<Operation>& operation, size_t index);
  // The tensor has ended. event: it was launched on a device, and ends there later.
  void ended(const Operation& operation, size_t index, const std::shared_ptr<backend::DeviceEvent>& event);
  // Whatever the program does next with the memory of this operation, whose calls were launched, runs after
  // them.
  void is_waited_for(const Operation& operation);
  struct Conflicts {
    bool is_running = false;  // a call that has started uses the memory
    DeviceEvents events;      // and launched calls, which may have ended since
  };
  // What this tensor has to wait for before it may start.
  [[nodiscard]] Conflicts before(const Operation& operation, size_t index);
  [[nodiscard]] bool has_launched() const { return launched_ > 0; }
  // Launched calls whose memory is remembered, if there are so many that they should be looked through;
  // then those that have ended are to be forgotten.
  [[nodiscard]] DeviceEvents to_look_through() const;
  void forget(const DeviceEvents& ended);
  void clear();

 private:
  struct Use {
    bool is_written = false;
    int64_t handle = 0;
    size_t index = 0;
    std::shared_ptr<Operation> operation;         // null: launched
    std::shared_ptr<backend::DeviceEvent> event;  // of the call that was launched
  };
  static constexpr size_t kManyLaunched = 4096;

  // Calls f(use) for each use by another tensor that must not run at the same time.
  template <class F>
  void for_each_conflict(const Operation& operation, size_t index, const F& f);

  void name_those_before(Operation& operation, size_t index);

  RangeTable<Use> uses_;
  size_t launched_ = 0;  // uses with an event
  size_t look_at_ = kManyLaunched;
};

}  // namespace rueda::runtime
