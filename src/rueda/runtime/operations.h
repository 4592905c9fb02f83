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
#include <span>
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
#include "rueda/runtime/in_flight_names.h"
#include "rueda/runtime/memory_in_use.h"
#include "rueda/runtime/operation.h"
#include "rueda/runtime/prepared.h"

namespace rueda::runtime {

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
  // Ends an operation of tensors that is submitted while nothing else is in flight, if that needs no engine.
  // Called with the mutex held.
  using EndNow = std::function<bool(Operation&)>;
  // Handles are numbered from first_handle: a process never uses a number twice, not even after shutdown.
  // The same for what is prepared, from first_prepared.
  explicit Operations(std::function<void()> wake_engine, int64_t first_handle = 1, int64_t first_prepared = 1,
                      EndNow end_now = {})
      : wake_engine_(std::move(wake_engine)),
        end_now_(std::move(end_now)),
        next_handle_(first_handle),
        prepared_(first_prepared) {}
  struct Numbers {
    int64_t handle = 1, prepared = 1;
  };
  [[nodiscard]] Numbers next_numbers() const;

  // Registers all tensors of one operation or none. Refuses names in flight (kDuplicateName) and,
  // once closed, everything with the closing status. wakes: false if the caller is about to do the
  // engine's work itself.
  Result<int64_t> submit(std::vector<Tensor> tensors, bool wakes = true);
  Result<int64_t> submit(control::SetChange change);
  void wake() { wake_engine_(); }
  // Describes an operation of one tensor, without addresses, that will start again and again. Returns its
  // number, which is no number of another epoch.
  int64_t prepare(Tensor tensor);
  // What was prepared under this number; null if there is nothing.
  [[nodiscard]] std::shared_ptr<const Tensor> prepared(int64_t number) const;
  // As submit(), without a wake-up and, once it has run, without allocating memory.
  Result<int64_t> start(const PreparedStart& start);
  void forget(int64_t number);          // what was prepared; a run under way goes on
  void forget_of(int32_t process_set);  // the same for all of a set, whose id another set may get
  // Waiting threads sleep at once, because other ranks want the core. To be called before any waits.
  void sleep_at_once() { sleeps_at_once_ = true; }
  // To be called before the caller does the engine's work for an operation. If it will then sleep at once,
  // the engine learns now that a thread waits, and need not be woken to learn it.
  void about_to_wait(const Operation& operation) const;
  // An operation is pending until its events have happened.
  int poll(int64_t handle) const;  // 1 done, 0 pending, -1 unknown
  Status wait(int64_t handle, std::optional<Deadline> deadline);
  std::shared_ptr<Operation> find(int64_t handle) const;  // null if unknown
  void release(int64_t handle);
  void release(std::span<const int64_t> handles);
  // Waits for operations one after the other, until each is done, and makes a stream wait for its events,
  // also where it has failed. They are found at once, and the stream waits once for each event.
  class StreamWaits {
   public:
    StreamWaits(Operations& operations, std::span<const int64_t> handles, void* stream);
    [[nodiscard]] const std::shared_ptr<Operation>& operation(size_t index) const { return found_[index]; }
    Status wait(size_t index, std::optional<Deadline> deadline);

   private:
    Operations& operations_;
    std::span<const int64_t> handles_;
    void* stream_;
    std::vector<std::shared_ptr<Operation>> found_;  // [index of the handle]; null: unknown
    std::vector<const backend::DeviceEvent*> waits_for_;
  };
  // A thread waits for the operation from then on. True if none did before.
  bool want(const Operation& operation, Nanos from) const;
  // Calls back once when is_done: on the engine thread, or here if it is done already. Without any lock held,
  // so that the callback may use this object.
  Status on_done(int64_t handle, Callback callback);

  // ---- engine thread ----
  // Puts what was submitted in place of what is in `taken`.
  void take_submitted(std::vector<std::shared_ptr<Operation>>& taken);
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
  [[nodiscard]] bool is_awaited(Nanos now) const;  // a thread waits for an operation at this time

 private:
  static NameView view_of(const Operation& operation, size_t index);
  Prepared* prepared_of(const Operation& operation);  // null: it was submitted, or is forgotten
  void leave_name(const Operation& operation, size_t index);
  // kTimeout where it is not done by then.
  Status until_done(const Operation& operation, std::optional<Deadline> deadline);
  std::shared_ptr<Operation> release_locked(int64_t handle);           // to be destroyed without the lock
  Result<int64_t> enter(const std::shared_ptr<Operation>& operation);  // all its names, or none
  bool ends_now(Operation& operation);
  // To call without the lock, like completed_.notify_all().
  std::vector<Callback> complete_locked(Operation& operation);
  void is_waited_for(const Operation& operation);
  void look_through_launched();

  std::function<void()> wake_engine_;
  bool sleeps_at_once_ = false;
  EndNow end_now_;
  mutable std::atomic<uint64_t> wants_{0};
  mutable std::mutex mutex_;
  std::condition_variable completed_;
  Status closed_;
  int64_t next_handle_;
  OperationsByHandle handles_;
  InFlightNames in_flight_;
  PreparedTable prepared_;
  MemoryInUse memory_;
  std::vector<std::shared_ptr<Operation>> submitted_;
};

}  // namespace rueda::runtime
