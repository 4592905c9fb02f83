#include "plugins/jax/in_flight.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "rueda/rueda.h"

namespace rueda::jax {

bool InFlight::has(int64_t id) {
  std::lock_guard lock(mutex_);
  return operations_.contains(id);
}

void InFlight::add(int64_t id, PendingOperation operation) {
  std::lock_guard lock(mutex_);
  operations_[id].push_back(std::move(operation));
}

std::optional<PendingOperation> InFlight::take(int64_t id, const void* buffer) {
  std::lock_guard lock(mutex_);
  auto found = operations_.find(id);
  if (found == operations_.end()) {
    return std::nullopt;
  }
  std::deque<PendingOperation>& queue = found->second;
  auto mine = std::find_if(queue.begin(), queue.end(),
                           [&](const PendingOperation& one) { return one.buffer == buffer; });
  if (mine == queue.end()) {
    return std::nullopt;
  }
  PendingOperation taken = std::move(*mine);
  queue.erase(mine);
  if (queue.empty()) {
    operations_.erase(found);
  }
  return taken;
}

void InFlight::wait() {
  std::vector<int64_t> handles;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [id, queue] : operations_) {
      for (const PendingOperation& one : queue) {
        handles.push_back(one.handle);
      }
    }
  }
  for (int64_t handle : handles) {
    if (handle != 0) {
      rueda_wait(handle, -1.0);  // its own done reports how it ended
    }
  }
}

void InFlight::abandon() {
  std::unordered_map<int64_t, std::deque<PendingOperation>> left;
  {
    std::lock_guard lock(mutex_);
    left.swap(operations_);
  }
  for (const auto& [id, queue] : left) {
    for (const PendingOperation& one : queue) {
      if (one.handle != 0) {
        rueda_wait(one.handle, -1.0);  // the program has failed anyway
        rueda_release(one.handle);
      }
      if (one.event != nullptr) {
        rueda_release_event(one.device, one.event);
      }
    }
  }
}

InFlight& in_flight() {
  static InFlight* const only = new InFlight;
  return *only;
}

}  // namespace rueda::jax
