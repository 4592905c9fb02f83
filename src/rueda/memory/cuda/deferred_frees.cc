#include "rueda/memory/cuda/deferred_frees.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "rueda/base/log.h"
#include "rueda/base/thread.h"

namespace rueda::cuda {
namespace {

struct Queue {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> work;  // the first one runs until it is removed
  int users = 0;
  bool is_running = false;
  std::thread thread;
};

Queue& queue() {
  static Queue* const one = new Queue;  // never destroyed: memory may be freed at the very end
  return *one;
}

void run(Queue& mine) {
  std::unique_lock lock(mine.mutex);
  for (;;) {
    mine.changed.wait(lock, [&] { return !mine.work.empty() || mine.users == 0; });
    if (mine.work.empty()) break;
    const std::function<void()> next = mine.work.front();
    lock.unlock();
    next();
    lock.lock();
    mine.work.pop_front();
    mine.changed.notify_all();
  }
  mine.is_running = false;
  mine.changed.notify_all();
}

}  // namespace

DeferredFrees::DeferredFrees(Nanos patience) : patience_(patience) {
  Queue& mine = queue();
  const std::lock_guard lock(mine.mutex);
  ++mine.users;
  if (mine.is_running) return;
  if (mine.thread.joinable()) mine.thread.join();  // it has ended
  mine.is_running = start_thread(mine.thread, "freeing device memory", [&mine] { run(mine); }).is_ok();
}

DeferredFrees::~DeferredFrees() {
  Queue& mine = queue();
  std::unique_lock lock(mine.mutex);
  if (--mine.users > 0) return;
  mine.changed.notify_all();
  mine.changed.wait_for(lock, std::chrono::nanoseconds(patience_),
                        [&] { return !mine.is_running || mine.users > 0; });
  if (mine.users > 0) return;
  if (!mine.is_running) {
    if (mine.thread.joinable()) mine.thread.join();
    return;
  }
  RUEDA_LOG(
      kWarning,
      "The GPU still works on what it was given, so CUDA has not freed the memory of rueda there within " +
          std::to_string(patience_ / kSecond) + " s; a thread of rueda waits for it.");
}

bool free_elsewhere(std::function<void()> free) {
  Queue& mine = queue();
  const std::lock_guard lock(mine.mutex);
  if (!mine.is_running) return false;
  mine.work.push_back(std::move(free));
  mine.changed.notify_all();
  return true;
}

bool wait_for_frees(Deadline deadline) {
  Queue& mine = queue();
  std::unique_lock lock(mine.mutex);
  if (mine.work.empty()) return false;
  const auto left = std::chrono::nanoseconds(std::max<Nanos>(0, deadline.when() - monotonic_now()));
  mine.changed.wait_for(lock, left, [&] { return mine.work.empty(); });
  return true;
}

}  // namespace rueda::cuda
