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
// Where nobody else wants the core, a thread that waits for its own operation goes on looking for so long.
constexpr Nanos kPatienceAlone = 200 * kMicrosecond;
// A yield that takes less had nobody to yield to.
constexpr Nanos kIdleYield = kMicrosecond;
// The engine's own thread leaves the wires to those who wait for so long, and longer when they go on.
constexpr Nanos kQuietTime = kMillisecond, kLongestQuietTime = 8 * kMillisecond;
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
  if (now - last_moved_ >= kYieldBeforeSleep || is_left_to_waiters(now)) return park(lock, next_event(now));
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
  if (!suspicions_.is_empty()) until = std::min(until, suspicions_.next_event());
  if (failure_deadline_ != 0) until = std::min(until, failure_deadline_);
  if (phase_ != Phase::kRunning) until = std::min(until, now + 10 * kMillisecond);
  return std::max(until, now + kMillisecond);  // a date that has passed is no reason to spin
}

// Announces sleep everywhere, then looks everywhere once more.
bool Engine::prepare_sleep() {
  is_asleep_.store(true);
  const bool is_leaving_now = is_leaving_ && !has_asked_to_leave_ && phase_ == Phase::kRunning;
  if (operations_.has_submitted() || is_leaving_now || has_trace_batches()) return false;
  return session_.backends->prepare_sleep() && (!session_.links || session_.links->prepare_sleep());
}

void Engine::end_sleep() {
  is_asleep_.store(false);
  session_.backends->wake_up();
}

// Who has waited often waits again at once. What arrives meanwhile is mostly for that call, and where nothing
// is in flight it can do without the engine's own thread for so long.
bool Engine::is_left_to_waiters(Nanos now) const {
  return now - last_driven_ < kQuietTime && operations_.is_empty() && dispatcher_.is_idle() &&
         (!session_.links || !session_.links->has_unsent_frames());
}

void Engine::set_gate(bool is_left, Nanos now) {
  is_left ? gate_.close_until(now + quiet_time_, now) : gate_.open();
}

void Engine::park(std::unique_lock<std::mutex>& lock, Nanos until) {
  const Nanos now = monotonic_now();
  const bool is_left = is_left_to_waiters(now);
  set_gate(is_left, now);
  // The longer they go on waiting, the less often this thread comes back to see whether they still do.
  quiet_time_ = is_left ? std::min(2 * quiet_time_, kLongestQuietTime) : kQuietTime;
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
  const Nanos since = monotonic_now();
  const auto is_done = [&] {
    return operation == nullptr || operation->is_done.load(std::memory_order_acquire);
  };
  bool is_driven = false;
  for (; !is_done(); sched_yield()) {  // whoever has the engine often has it only for a look
    is_driven = drive(*operation, deadline);
    if (is_driven || monotonic_now() - since >= kYieldBeforeSleep) break;
  }
  if (!is_done() && !is_driven) wake();  // its own thread may have looked before the operation was there
  return operations_.wait(handle, deadline);
}

// False where somebody else does the work.
bool Engine::drive(const Operation& operation, std::optional<Deadline> deadline) {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return false;
  if (phase_ == Phase::kClosed) return true;
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
    const Nanos patience = has_core_to_itself_ ? kPatienceAlone : kYieldBeforeSleep;
    if (now - moved >= patience || (deadline && deadline->is_past(now))) break;
    if (has_core_to_itself_ && look_closely(operation)) {
      moved = monotonic_now();
      continue;
    }
    now = monotonic_now();
    sched_yield();
    has_core_to_itself_ = monotonic_now() - now < kIdleYield;
  }
  last_moved_ = last_driven_ = monotonic_now();
  if (is_parked_) leave_parked();
  return true;
}

// Looks at nothing but the call under way. True if it moved.
bool Engine::look_closely(const Operation& operation) {
  const bool is_on_wires = !dispatcher_.waits_on_memory();
  if (is_on_wires && !session_.links) return false;
  for (int look = 0; look < kCloseLooks && !operation.is_done.load(std::memory_order_acquire); ++look) {
    if (is_on_wires && !session_.links->progress(session_.on_data)) continue;
    if (dispatcher_.progress() || is_on_wires) return true;
  }
  return false;
}

// The parked thread goes on where this one stops: it must be woken for what it would not notice.
void Engine::leave_parked() {
  const bool has_news = phase_ != Phase::kRunning || suspect_ >= 0 || !suspicions_.is_empty() ||
                        failure_deadline_ != 0 || next_round_ > last_moved_;
  const bool is_left = is_left_to_waiters(last_moved_);
  if (!has_silent_lanes_ || !is_left) set_gate(is_left, last_moved_);
  if (!prepare_sleep() || has_news) wake();
}

}  // namespace rueda::runtime
