// Who does the engine's work, and how it sleeps and is woken.
//
// The engine's own thread holds mutex_ while it works and gives it up while it yields or sleeps ("parked"). A
// thread that waits for an operation may take it meanwhile and do the work itself: a small allreduce then
// costs no wake-up of another thread, which takes some 30 us. It leaves the engine as it found it: parked,
// with every bell announced.

#include <sched.h>
#include <unistd.h>

#include <algorithm>

#include "rueda/runtime/engine.h"
#include "rueda/runtime/floating_point.h"

namespace rueda::runtime {
namespace {

// After the last movement a thread yields this long before it sleeps; sleeping costs a wake-up of some 30
// us, and spinning longer would take cores from the computation this library serves.
constexpr Nanos kYieldBeforeSleep = 50 * kMicrosecond;
constexpr Nanos kMaxSleep = 500 * kMillisecond;
// A yield that takes less had nobody to yield to.
constexpr Nanos kIdleYield = kMicrosecond;
constexpr int kCloseLooks = 4;  // rounds of the backend, some 3 us each

}  // namespace

void Engine::wake() {
  // The thread announces its sleep, then looks once more; whoever clears the flag rings.
  if (is_asleep_.exchange(false)) ring();
}

void Engine::ring() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(session_.bell.get(), &one, sizeof(one));
}

void Engine::idle(std::unique_lock<std::mutex>& lock) {
  const Nanos now = monotonic_now();
  if (now - last_moved_ >= kYieldBeforeSleep) return park(lock, next_event(now));
  lock.unlock();
  sched_yield();
  lock.lock();
}

Nanos Engine::next_event(Nanos now) const {
  Nanos until = now + kMaxSleep;
  if (session_.links) until = std::min(until, liveness_.next_event());
  if (coordinator_ && phase_ == Phase::kRunning) until = std::min(until, next_stall_check_);
  until = std::min(until, planner_.next_event());
  if (next_round_ > now) until = std::min(until, next_round_);
  if (suspect_ >= 0) until = std::min(until, suspect_deadline_);
  if (failure_deadline_ != 0) until = std::min(until, failure_deadline_);
  if (phase_ != Phase::kRunning) until = std::min(until, now + 10 * kMillisecond);
  return std::max(until, now + kMillisecond);  // a date that has passed is no reason to spin
}

// Announces sleep everywhere, then looks everywhere once more.
bool Engine::prepare_sleep() {
  is_asleep_.store(true);
  gate_.open();
  const bool is_leaving_now = is_leaving_ && !has_asked_to_leave_ && phase_ == Phase::kRunning;
  if (operations_.has_submitted() || is_leaving_now || has_trace_batches()) return false;
  return session_.backend->prepare_sleep() && (!session_.links || session_.links->prepare_sleep());
}

void Engine::end_sleep() {
  is_asleep_.store(false);
  session_.backend->wake_up();
}

void Engine::park(std::unique_lock<std::mutex>& lock, Nanos until) {
  if (prepare_sleep()) {
    std::vector<int> fds(gate_.fds().begin(), gate_.fds().end());
    fds.push_back(session_.bell.get());
    is_parked_ = true;
    lock.unlock();
    sleep_on(fds, Deadline::at(until));
    lock.lock();
    is_parked_ = false;
  }
  end_sleep();
  uint64_t rings = 0;
  [[maybe_unused]] const ssize_t drained = read(session_.bell.get(), &rings, sizeof(rings));
}

Status Engine::wait(int64_t handle, std::optional<Deadline> deadline) {
  const std::shared_ptr<Operation> operation = operations_.find(handle);
  if (operation && !operation->is_done.load(std::memory_order_acquire)) drive(*operation, deadline);
  return operations_.wait(handle, deadline);
}

void Engine::drive(const Operation& operation, std::optional<Deadline> deadline) {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return wake();  // somebody works, or is about to sleep and must look again
  if (phase_ == Phase::kClosed) return;
  const DefaultFloatingPoint arithmetic;
  if (is_parked_) {
    if (!has_silent_lanes_) gate_.close();
    end_sleep();
  }
  Nanos now = monotonic_now();
  for (Nanos moved = now; !operation.is_done.load(std::memory_order_acquire) && phase_ != Phase::kClosed;) {
    if (cycle()) {
      moved = monotonic_now();
      continue;
    }
    now = monotonic_now();
    if (now - moved >= kYieldBeforeSleep || (deadline && deadline->is_past(now))) break;
    if (has_core_to_itself_ && look_closely(operation)) {
      moved = monotonic_now();
      continue;
    }
    now = monotonic_now();
    sched_yield();
    has_core_to_itself_ = monotonic_now() - now < kIdleYield;
  }
  last_moved_ = monotonic_now();
  if (is_parked_) leave_parked();
}

// Looks at nothing but the call under way, where that takes no system call. True if it moved.
bool Engine::look_closely(const Operation& operation) {
  if (!session_.backend->waits_on_memory()) return false;
  for (int look = 0; look < kCloseLooks && !operation.is_done.load(std::memory_order_acquire); ++look) {
    if (dispatcher_.progress()) return true;
  }
  return false;
}

// The parked thread goes on where this one stops: it must be woken for what it would not notice.
void Engine::leave_parked() {
  const bool has_news =
      phase_ != Phase::kRunning || suspect_ >= 0 || failure_deadline_ != 0 || next_round_ > last_moved_;
  if (!prepare_sleep() || has_news) wake();
}

}  // namespace rueda::runtime
