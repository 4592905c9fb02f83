#include "rueda/runtime/driver.h"

#include <sched.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "rueda/base/log.h"
#include "rueda/base/thread.h"
#include "rueda/runtime/floating_point.h"
#include "rueda/runtime/links.h"
#include "rueda/status/native_stacks.h"

namespace rueda::runtime {
namespace {

// After the last movement a thread yields this long before it sleeps; sleeping costs a wake-up of some 30
// us, and spinning longer would take cores from the computation this library serves.
constexpr Nanos kYieldBeforeParking = 50 * kMicrosecond;
constexpr Nanos kMaxSleep = 500 * kMillisecond;
// If no other thread wants the core, a thread that waits for its own operation goes on looking for so long.
constexpr Nanos kPatienceAlone = 200 * kMicrosecond;
// A yield that takes less time found no other thread that wanted the core.
constexpr Nanos kIdleYield = kMicrosecond;
// The engine's own thread leaves arriving data to waiting threads for so long, and for longer if they
// go on waiting.
constexpr Nanos kQuietTime = kMillisecond, kLongestQuietTime = 8 * kMillisecond;

bool yield_finds_nobody() {
  const Nanos before = monotonic_now();
  sched_yield();
  return monotonic_now() - before < kIdleYield;
}

void pin_thread(const std::string& affinity, Rank local_rank) {
  if (affinity.empty()) return;
  std::string_view rest = affinity;
  for (Rank i = 0; i < local_rank && !rest.empty(); ++i) {
    const size_t comma = rest.find(',');
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
  }
  const std::string entry(rest.substr(0, rest.find(',')));
  cpu_set_t set;
  CPU_ZERO(&set);
  const bool is_number =
      !entry.empty() && std::all_of(entry.begin(), entry.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (is_number && entry.size() < 5) CPU_SET(static_cast<size_t>(std::stoi(entry)), &set);
  if (!is_number || sched_setaffinity(0, sizeof(set), &set) != 0) {
    RUEDA_LOG(kError, "RUEDA_THREAD_AFFINITY=" + affinity + " has no usable core for local rank " +
                          std::to_string(local_rank) + "; the engine thread is not pinned.");
  }
}

}  // namespace

Driver::Driver(Work& work, Options options)
    : work_(work), options_(std::move(options)), wake_filter_(std::exchange(options_.wake_fds, {})) {
  std::vector<int> fds(wake_filter_.fds().begin(), wake_filter_.fds().end());
  fds.push_back(options_.doorbell);
  polled_ = polled_for_input(fds);
}

Status Driver::start() {
  // Here, not on the engine's thread: it loads a library, and a child that is forked meanwhile can load none.
  status::prepare_native_stacks();
  return start_thread(thread_, "the engine", [this] { run(); });
}

void Driver::join() {
  if (thread_.joinable()) thread_.join();
}

void Driver::run() {
  prctl(PR_SET_NAME, "rueda-engine");
  status::admit_stack_signal();
  const DefaultFloatingPoint arithmetic;
  pin_thread(options_.affinity, options_.local_rank);
  std::unique_lock lock(mutex_);
  stillness_.moved(monotonic_now());
  while (!work_.is_over()) {
    if (work_.turn())
      stillness_.moved(monotonic_now());
    else if (!work_.is_over())
      idle(lock);
  }
  lock.unlock();
  work_.ended();
}

void Driver::wake() {
  // The engine's own thread announces its sleep, then looks once more. The thread that clears the flag rings.
  if (!is_asleep_.exchange(false)) return;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(options_.doorbell, &one, sizeof(one));
}

void Driver::idle(std::unique_lock<std::mutex>& lock) {
  const Nanos now = monotonic_now();
  const bool is_still =
      options_.is_crowded || stillness_.exceeds(yields_for(), now) || is_left_to_waiters(now);
  if (is_still && !work_.needs_polling()) return park(lock, sleeps_until(now));
  lock.unlock();
  const bool is_alone = yield_finds_nobody();
  lock.lock();
  has_core_to_itself_ = is_alone;
  stillness_.yielded();
}

// Where other threads want the core, they get it: yielding would only take turns with them.
Nanos Driver::yields_for() const {
  return options_.spans_hosts && !has_core_to_itself_ ? 0 : kYieldBeforeParking;
}

Nanos Driver::sleeps_until(Nanos now) const {
  const Nanos until = std::min(now + kMaxSleep, work_.next_event(now));
  return std::max(until, now + kMillisecond);  // a time that has passed is no reason to spin
}

bool Driver::prepare_sleep() {
  is_asleep_.store(true);
  return work_.prepare_sleep();
}

void Driver::end_sleep() {
  is_asleep_.store(false);
  work_.wake_up();
}

// A thread that has waited often waits again at once. Data that arrives in between is mostly for its next
// call. If nothing is in flight, the engine's own thread need not look at it for a while.
bool Driver::is_left_to_waiters(Nanos now) const {
  return now - last_driven_ < kQuietTime && work_.is_quiet();
}

void Driver::set_wake_filter(bool is_left, Nanos now) {
  is_left ? wake_filter_.close_until(now + quiet_time_, now) : wake_filter_.open();
}

void Driver::park(std::unique_lock<std::mutex>& lock, Nanos until) {
  const Nanos now = monotonic_now();
  const bool is_left = is_left_to_waiters(now);
  set_wake_filter(is_left, now);
  // The longer they go on waiting, the less often this thread comes back to see whether they still do.
  quiet_time_ = is_left ? std::min(2 * quiet_time_, kLongestQuietTime) : kQuietTime;
  if (prepare_sleep()) {
    is_parked_ = true;
    lock.unlock();
    sleep_on(polled_, Deadline::at(until));
    lock.lock();
    is_parked_ = false;
  }
  end_sleep();
  uint64_t rings = 0;
  [[maybe_unused]] const ssize_t taken = read(options_.doorbell, &rings, sizeof(rings));
}

void Driver::help(const std::atomic<bool>& is_done, std::optional<Deadline> deadline) {
  const Nanos since = monotonic_now();
  bool is_driven = false;
  for (; !is_done.load(std::memory_order_acquire); sched_yield()) {
    // Another thread often holds the engine only for one look.
    is_driven = drive(is_done, deadline);
    if (is_driven || options_.is_crowded || monotonic_now() - since >= kYieldBeforeParking) break;
  }
  // The engine's own thread may have looked before the operation was submitted.
  if (!is_driven && !is_done.load(std::memory_order_acquire)) wake();
}

// False if another thread does the work.
bool Driver::drive(const std::atomic<bool>& is_done, std::optional<Deadline> deadline) {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return false;
  if (work_.is_over()) return true;
  const DefaultFloatingPoint arithmetic;
  if (is_parked_) {
    if (!options_.has_silent_channels) wake_filter_.close();
    end_sleep();
  }
  stillness_.moved(monotonic_now());
  while (!is_done.load(std::memory_order_acquire) && !work_.is_over()) {
    if (work_.turn()) {
      stillness_.moved(monotonic_now());
      continue;
    }
    if (options_.is_crowded) break;
    const Nanos now = monotonic_now();
    const Nanos patience = has_core_to_itself_ ? kPatienceAlone : yields_for();
    if (stillness_.exceeds(patience, now) || (deadline && deadline->is_past(now))) break;
    if (has_core_to_itself_ && work_.look_closely(is_done)) {
      stillness_.moved(monotonic_now());
      continue;
    }
    has_core_to_itself_ = yield_finds_nobody();
    stillness_.yielded();
  }
  last_driven_ = monotonic_now();
  if (is_parked_) leave_parked();
  return true;
}

// The parked thread continues after this one. It must be woken for whatever it would not notice.
void Driver::leave_parked() {
  const bool is_left = is_left_to_waiters(last_driven_);
  if (!options_.has_silent_channels || !is_left) set_wake_filter(is_left, last_driven_);
  const bool may_sleep = prepare_sleep();
  if (!may_sleep || work_.has_due_times(last_driven_)) wake();
}

}  // namespace rueda::runtime
