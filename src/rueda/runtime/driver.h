// Which thread does the engine's work, and how it sleeps and is woken.
//
// The engine's own thread holds the engine while it works, and gives it up while it yields or sleeps
// ("parked"). A thread that waits for an operation may take it meanwhile and do the work itself: a small
// allreduce then costs no wake-up of another thread, which takes some 30 us. Afterwards it leaves the engine
// as it found it: parked, and with its sleep announced.
#pragma once

#include <poll.h>

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

// The work to do. Only the thread that holds the engine calls it; other headers call that thread
// the engine thread.
class Work {
 public:
  virtual ~Work() = default;
  // One look at everything. True if anything moved.
  virtual bool turn() = 0;
  // Looks at nothing but the calls under way, a few times. True if one moved.
  virtual bool look_closely(const std::atomic<bool>& is_done) = 0;
  [[nodiscard]] virtual bool is_over() const = 0;  // there are no more turns
  virtual void ended() = 0;  // once, on the engine's own thread, after it has given up the engine

  // When turn() must be called at the latest.
  [[nodiscard]] virtual Nanos next_event(Nanos now) const = 0;
  // Something is due at a time of which the parked thread may not know.
  [[nodiscard]] virtual bool has_due_times(Nanos now) const = 0;
  // Nothing is in flight, so only messages from other ranks make work.
  [[nodiscard]] virtual bool is_quiet() const = 0;
  // A call goes on only while turn() is called, so the thread must not sleep.
  [[nodiscard]] virtual bool needs_polling() const { return false; }
  // Announces to all who may wake this rank that it sleeps, then looks for work once more. False if there is
  // work. wake_up() withdraws the announcement.
  virtual bool prepare_sleep() = 0;
  virtual void wake_up() = 0;
};

// Since when nothing has moved, and whether the thread that looks for work has yielded since.
class Stillness {
 public:
  void moved(Nanos now) {
    since_ = now;
    has_yielded_ = false;
  }
  void yielded() { has_yielded_ = true; }
  // Whether a thread with this much patience stops looking. It yields at least once first.
  [[nodiscard]] bool exceeds(Nanos patience, Nanos now) const {
    return has_yielded_ && now - since_ >= patience;
  }

 private:
  Nanos since_ = 0;
  bool has_yielded_ = false;
};

class Driver {
 public:
  struct Options {
    int doorbell = -1;                 // eventfd that wakes the engine's own thread; borrowed
    std::vector<int> wake_fds;         // borrowed, for the WakeFilter
    bool has_silent_channels = false;  // only shared memory, which wakes only ranks that have announced sleep
    bool spans_hosts = false;          // a message takes longer than the wake-up of a thread
    bool is_crowded = false;           // a call takes longer than a thread would yield for it: none does
    std::string affinity;              // RUEDA_THREAD_AFFINITY
    Rank local_rank = 0;               // which entry of affinity counts
  };
  Driver(Work& work, Options options);

  // Starts the engine's own thread. Fails if this machine cannot start one.
  Status start();
  void join();

  // ---- any thread ----
  void wake();
  // Does the engine's work until is_done, as long as there is work and no other thread does it. The caller
  // still has to wait for the operation.
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
  [[nodiscard]] Nanos yields_for() const;
  bool drive(const std::atomic<bool>& is_done, std::optional<Deadline> deadline);
  void leave_parked();

  Work& work_;
  Options options_;
  std::atomic<bool> is_asleep_{false};

  std::mutex mutex_;                 // the thread that has locked it holds the engine
  bool is_parked_ = false;           // the engine's own thread sleeps in poll until it is rung
  WakeFilter wake_filter_;           // in front of the transports' descriptors
  std::vector<pollfd> polled_;       // that, and the doorbell
  bool has_core_to_itself_ = false;  // as the last yield has shown
  Stillness stillness_;
  Nanos last_driven_ = -kSecond;     // when a waiting thread last did the work
  Nanos quiet_time_ = kMillisecond;  // for which the engine's own thread leaves arriving data to such threads

  std::thread thread_;
};

}  // namespace rueda::runtime
