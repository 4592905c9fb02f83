// The operations in flight, and the one place where callers and the engine meet. A caller submits tensors and
// gets a handle, with which it polls, waits, or asks to be called back. The engine thread takes what was
// submitted, finds its tensors by name when a response names them, and completes them; no other thread
// completes operations. Any thread, except for what is marked "engine thread".
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "rueda/backend/device_event.h"
#include "rueda/base/clock.h"
#include "rueda/base/status.h"
#include "rueda/base/types.h"
#include "rueda/control/messages.h"
#include "rueda/memory/cuda/device.h"
#include "rueda/runtime/memory_in_use.h"

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

// One tensor of an operation: what was asked, where its bytes are, and what came of it.
struct Tensor {
  control::TensorRequest request;
  const void* input = nullptr;
  void* output = nullptr;  // the caller's, or allocated.get()
  // Of the caller's output, as far as this rank knows; 0: as many as of the input.
  size_t output_bytes = 0;
  bool is_only_read = false;  // the output is the input, and its values stay: the root of a broadcast
  Memory memory;              // of both; request.memory says of which kind it is
  OwnedMemory allocated;      // of that kind; set if the caller gave no output
  std::vector<int64_t> result_shape;
  std::vector<int32_t> received_splits;  // alltoall: rows from each member
  bool is_started = false;               // engine thread only: a call uses the memory

  [[nodiscard]] int64_t count() const;  // elements of the input
  // Elements of one row: the product of all dimensions but the first.
  [[nodiscard]] int64_t row_count() const;
  [[nodiscard]] size_t bytes() const;  // of the input
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
  std::vector<Callback> callbacks;  // under the mutex of Operations; called once, after is_done

  [[nodiscard]] const std::string& name() const;  // of the first tensor, or of the change
  // The first failure so far, on the device too. Only after is_done.
  [[nodiscard]] Status outcome() const;
};

// What a name stands for while it is in flight: a tensor on which the engine thread works, or a change of the
// process sets, which has no tensor.
struct TensorRef {
  std::shared_ptr<Operation> operation;
  size_t index = 0;
  [[nodiscard]] bool has_tensor() const { return index < operation->tensors.size(); }
  [[nodiscard]] Tensor& tensor() const { return operation->tensors[index]; }
};

// What an operator sees of an operation in flight.
struct InFlight {
  std::string name;       // of the first tensor that is not finished, or of a change of the process sets
  std::string_view what;  // name_of(), or "PROCESS_SET"
  int32_t process_set = 0;
  size_t bytes = 0;
  Nanos submitted = 0;
};

class Operations {
 public:
  // Handles are numbered from first_handle: a process never uses a number twice, not even after shutdown.
  explicit Operations(std::function<void()> wake_engine, int64_t first_handle = 1)
      : wake_engine_(std::move(wake_engine)), next_handle_(first_handle) {}
  [[nodiscard]] int64_t next_handle() const;

  // Registers all tensors of one operation or none. Refuses names in flight (kDuplicateName) and,
  // once closed, everything with the closing status. wakes: false if the caller is about to do the
  // engine's work itself.
  Result<int64_t> submit(std::vector<Tensor> tensors, bool wakes = true);
  Result<int64_t> submit(control::SetChange change);
  // An operation is pending until its events have happened.
  int poll(int64_t handle) const;  // 1 done, 0 pending, -1 unknown
  Status wait(int64_t handle, std::optional<Deadline> deadline);
  // Waits until the operation is done, and makes the stream wait for its events, also where it has failed.
  Status wait_on_stream(int64_t handle, void* stream, std::optional<Deadline> deadline);
  std::shared_ptr<Operation> find(int64_t handle) const;  // null if unknown
  void release(int64_t handle);
  // A thread waits for the operation from then on. True if none did before.
  bool want(const Operation& operation, Nanos from) const;
  // Calls back once when is_done: on the engine thread, or here if it is done already. Without any lock held,
  // so that the callback may use this object.
  Status on_done(int64_t handle, Callback callback);

  // ---- engine thread ----
  std::vector<std::shared_ptr<Operation>> take_submitted();
  [[nodiscard]] bool has_submitted() const;
  [[nodiscard]] bool is_empty() const;  // nothing is in flight
  std::optional<TensorRef> lookup(int32_t process_set, const std::string& name) const;
  // The tensor is finished; its operation completes with the last of them. event: of the call that was
  // launched with it; null for host memory.
  void finish(const TensorRef& ref, const Status& status,
              const std::shared_ptr<backend::DeviceEvent>& event = nullptr);
  // Whether a tensor that has not started has to wait for others that share its memory.
  enum class Turn : uint8_t { kNow, kAfterCall, kAfterDevice };
  Turn turn_of(const TensorRef& ref);
  // Everything in flight fails; later submissions are refused with the same status.
  void close(const Status& why);
  // The oldest tensors in flight, at most so many, and how many there are. Any thread.
  [[nodiscard]] std::pair<std::vector<InFlight>, size_t> oldest(size_t most) const;
  [[nodiscard]] Status closed_with() const;  // ok while open
  // Grows whenever a thread begins to wait for an operation that is not done.
  [[nodiscard]] uint64_t wants() const { return wants_.load(std::memory_order_relaxed); }
  // The tensors of the world for which a thread waits at this time.
  [[nodiscard]] std::vector<std::string> wanted_names(Nanos now) const;
  [[nodiscard]] bool is_awaited(Nanos now) const;  // a thread waits for an operation at this time

 private:
  struct Key {
    int32_t process_set;
    std::string name;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const {
      return std::hash<std::string>()(key.name) ^
             (static_cast<size_t>(key.process_set) * 0x9E3779B97F4A7C15u);
    }
  };
  static Key key_of(const Operation& operation, size_t index);
  // kTimeout where it is not done by then.
  Status until_done(const Operation& operation, std::optional<Deadline> deadline);
  Result<int64_t> enter(const std::shared_ptr<Operation>& operation);  // all its names, or none
  std::vector<Callback> complete_locked(Operation& operation);         // to call without the lock
  void is_waited_for(const Operation& operation);
  void look_through_launched();

  std::function<void()> wake_engine_;
  mutable std::atomic<uint64_t> wants_{0};
  mutable std::mutex mutex_;
  std::condition_variable completed_;
  Status closed_;
  int64_t next_handle_;
  std::unordered_map<int64_t, std::shared_ptr<Operation>> handles_;
  std::unordered_map<Key, TensorRef, KeyHash> in_flight_;
  MemoryInUse memory_;
  std::vector<std::shared_ptr<Operation>> submitted_;
};

}  // namespace rueda::runtime
