#include "rueda/memory/cuda/deferred_frees.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

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
}

}  // namespace

DeferredFrees::DeferredFrees() {
  Queue& mine = queue();
  const std::lock_guard lock(mine.mutex);
  ++mine.users;
  if (mine.is_running) return;
  if (mine.thread.joinable()) mine.thread.join();  // it has ended
  mine.is_running = start_thread(mine.thread, "freeing device memory", [&mine] { run(mine); }).is_ok();
}

DeferredFrees::~DeferredFrees() {
  Queue& mine = queue();
  std::thread last;
  {
    const std::lock_guard lock(mine.mutex);
    if (--mine.users > 0) return;
    mine.changed.notify_all();
    last = std::move(mine.thread);
  }
  if (last.joinable()) last.join();
}

bool free_elsewhere(std::function<void()> free) {
  Queue& mine = queue();
  const std::lock_guard lock(mine.mutex);
  if (mine.users == 0 || !mine.is_running) return false;
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
