#include "rueda/backend/nccl/launched.h"

#include <algorithm>

namespace rueda::nccl {

std::function<bool()> Launched::is_busy() const {
  return [at_work = at_work_] {
    if (at_work->is_launching) return true;
    const std::lock_guard lock(at_work->mutex);
    if (at_work->last != nullptr && at_work->last->outcome()) at_work->last.reset();
    return at_work->last != nullptr;
  };
}

void Launched::keep(std::shared_ptr<backend::CudaEvent> event) {
  {
    const std::lock_guard lock(at_work_->mutex);
    at_work_->last = event;
  }
  queued_ += entries_;
  launched_.push_back({.event = std::move(event), .entries = std::exchange(entries_, 0)});
}

Status Launched::watch() {
  Status first;
  while (!launched_.empty()) {
    const std::optional<Status> outcome = launched_.front().event->outcome();
    if (!outcome) break;
    if (first.is_ok()) first = *outcome;
    queued_ -= launched_.front().entries;
    launched_.pop_front();
  }
  return first;
}

bool Launched::wait(Deadline deadline) const {
  return std::ranges::all_of(launched_,
                             [&](const One& one) { return one.event->wait(deadline).has_value(); });
}

void Launched::condemn(const Status& why) const {
  for (const One& one : launched_) one.event->condemn(why);
}

void Launched::fail(const Status& why) const {
  for (const One& one : launched_) one.event->fail(why);
}

}  // namespace rueda::nccl
