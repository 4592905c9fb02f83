// Who does the engine's work, and how it sleeps and is woken.
//
// The engine's own thread holds the engine while it works, and gives it up while it yields or sleeps
// ("parked"). A thread that waits for an operation may take it meanwhile and do the work itself: a small
// allreduce then costs no wake-up of another thread, which takes some 30 us. It leaves the engine as it found
// it: parked, with every doorbell announced.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "rueda/base/clock.h"
#include "rueda/base/status.h"
#include "rueda/base/types.h"
#include "rueda/runtime/wake_filter.h"

namespace rueda::runtime {

// What is driven. Only whoever holds the engine calls it; "engine thread" in other headers means the holder.
class Work {
 public:
  virtual ~Work() = default;
  // One look at everything. True if anything moved.
  virtual bool turn() = 0;
  // Looks at nothing but the calls under way, a few times. True if one moved.
  virtual bool look_closely(const std::atomic<bool>& is_done) = 0;
  [[nodiscard]] virtual bool is_over() const = 0;  // there are no more turns
  virtual void ended() = 0;                        // once, on the engine's own thread, which holds it no more

  // When turn() must be called at the latest.
  [[nodiscard]] virtual Nanos next_event(Nanos now) const = 0;
  // Something has a date that the parked thread may not know of.
  [[nodiscard]] virtual bool has_dates(Nanos now) const = 0;
  // Nothing is in flight: only what arrives from other ranks makes work.
  [[nodiscard]] virtual bool is_quiet() const = 0;
  // Announces sleep everywhere, then looks everywhere once more. False: there is work. wake_up() ends it.
  virtual bool prepare_sleep() = 0;
  virtual void wake_up() = 0;
};

class Driver {
 public:
  struct Options {
    int doorbell = -1;                 // eventfd that wakes the engine's own thread; borrowed
    std::vector<int> wake_fds;         // as WakeFilter borrows them
    bool has_silent_channels = false;  // only shared memory: it wakes nobody who has not announced sleep
    std::string affinity;              // RUEDA_THREAD_AFFINITY
    Rank local_rank = 0;               // whose entry of it counts
  };
  Driver(Work& work, Options options);

  // The engine's own thread. Fails where this machine has no thread to give.
  Status start();
  void join();

  // ---- any thread ----
  void wake();
  // Does the engine's work until is_done, as long as there is any and nobody else is at it. The caller still
  // has to wait.
  void help(const std::atomic<bool>& is_done, std::optional<Deadline> deadline);

 private:
  void run();
  void idle(std::unique_lock<std::mutex>& lock);
  void park(std::unique_lock<std::mutex>& lock, Nanos until);
  [[nodiscard]] bool is_left_to_waiters(Nanos now) const;
  void set_wake_filter(bool is_left, Nanos now);
  [[nodiscard]] bool prepare_sleep();
  void end_sleep();
  [[nodiscard]] Nanos sleeps_until(Nanos now) const;
  bool drive(const std::atomic<bool>& is_done, std::optional<Deadline> deadline);
  void leave_parked();

  Work& work_;
  Options options_;
  std::atomic<bool> is_asleep_{false};

  std::mutex mutex_;                 // whoever holds it is the engine
  bool is_parked_ = false;           // the engine's own thread sleeps in poll until rung
  WakeFilter wake_filter_;           // of the transports' descriptors
  bool has_core_to_itself_ = false;  // as far as the last yield has shown
  Nanos last_moved_ = 0;
  Nanos last_driven_ = -kSecond;     // by a thread that waited
  Nanos quiet_time_ = kMillisecond;  // that the engine's own thread leaves the wires to such threads

  std::thread thread_;
};

}  // namespace rueda::runtime
