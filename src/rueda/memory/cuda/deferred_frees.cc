#include "rueda/memory/cuda/deferred_frees.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "rueda/base/log.h"
#include "rueda/base/thread.h"

namespace rueda::cuda {
namespace {

// What may wait to be freed; more is freed at once.
constexpr size_t kMostPendingBytes = 256 << 20;  // bytes, as far as they are known
constexpr size_t kMostPendingBlocks = 64;
constexpr auto kLookEvery = std::chrono::milliseconds(1);

struct Work {
  std::function<void()> free;
  size_t bytes = 0;
};

struct Queue {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Work> work;                                        // the first one runs until it is removed
  size_t bytes = 0;                                             // of all that
  std::map<const DeferredFrees*, std::function<bool()>> users;  // and whether they are busy
  int in_need = 0;                                              // threads that need memory
  bool is_running = false;
  std::thread thread;

  // Whether it is better to wait. With the mutex held.
  [[nodiscard]] bool is_held_back() const {
    if (in_need > 0 || bytes > kMostPendingBytes || work.size() > kMostPendingBlocks) return false;
    return std::ranges::any_of(users, [](const auto& user) { return user.second && user.second(); });
  }
};

Queue& queue() {
  static Queue* const one = new Queue;  // never destroyed: memory may be freed at the very end
  return *one;
}

void run(Queue& mine) {
  std::unique_lock lock(mine.mutex);
  for (;;) {
    mine.changed.wait(lock, [&] { return !mine.work.empty() || mine.users.empty(); });
    if (mine.work.empty()) break;
    if (mine.is_held_back()) {
      mine.changed.wait_for(lock, kLookEvery);
      continue;
    }
    const std::function<void()> next = mine.work.front().free;
    lock.unlock();
    next();
    lock.lock();
    mine.bytes -= mine.work.front().bytes;
    mine.work.pop_front();
    mine.changed.notify_all();
  }
  mine.is_running = false;
  mine.changed.notify_all();
}

}  // namespace

DeferredFrees::DeferredFrees(std::function<bool()> is_busy, Nanos patience) : patience_(patience) {
  Queue& mine = queue();
  const std::lock_guard lock(mine.mutex);
  mine.users.emplace(this, std::move(is_busy));
  if (mine.is_running) return;
  if (mine.thread.joinable()) mine.thread.join();  // it has ended
  mine.is_running = start_thread(mine.thread, "freeing device memory", [&mine] { run(mine); }).is_ok();
}

DeferredFrees::~DeferredFrees() {
  Queue& mine = queue();
  std::unique_lock lock(mine.mutex);
  mine.users.erase(this);
  mine.changed.notify_all();
  if (!mine.users.empty()) return;
  mine.changed.wait_for(lock, std::chrono::nanoseconds(patience_),
                        [&] { return !mine.is_running || !mine.users.empty(); });
  if (!mine.users.empty()) return;
  if (!mine.is_running) {
    if (mine.thread.joinable()) mine.thread.join();
    return;
  }
  RUEDA_LOG(
      kWarning,
      "The GPU still works on what it was given, so CUDA has not freed the memory of rueda there within " +
          std::to_string(patience_ / kSecond) + " s; a thread of rueda waits for it.");
}

bool free_elsewhere(std::function<void()> free, size_t bytes) {
  Queue& mine = queue();
  const std::lock_guard lock(mine.mutex);
  if (!mine.is_running) return false;
  mine.work.push_back({.free = std::move(free), .bytes = bytes});
  mine.bytes += bytes;
  mine.changed.notify_all();
  return true;
}

bool wait_for_frees(Deadline deadline) {
  Queue& mine = queue();
  std::unique_lock lock(mine.mutex);
  if (mine.work.empty()) return false;
  const auto left = std::chrono::nanoseconds(std::max<Nanos>(0, deadline.when() - monotonic_now()));
  ++mine.in_need;
  mine.changed.notify_all();
  mine.changed.wait_for(lock, left, [&] { return mine.work.empty(); });
  --mine.in_need;
  return true;
}

}  // namespace rueda::cuda
