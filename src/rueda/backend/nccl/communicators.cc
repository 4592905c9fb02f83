#include "rueda/backend/nccl/communicators.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "rueda/base/check.h"
#include "rueda/base/thread.h"

namespace rueda::nccl {

Communicators::~Communicators() { RUEDA_CHECK(made_.empty(), "communicators must be finished or aborted"); }

Communicator* Communicators::find(const Group& set, const Group& members) const {
  const auto found = made_.find(key_of(set, members));
  return found == made_.end() ? nullptr : found->second.get();
}

Result<Communicator*> Communicators::begin(const UniqueId& id, const Group& set, const Group& members,
                                           size_t pack_bytes) {
  Result<std::unique_ptr<Communicator>> begun = Communicator::begin(library_, id, members, pack_bytes);
  if (!begun.is_ok()) return begun.status();
  return (made_[key_of(set, members)] = std::move(begun).value()).get();
}

Status Communicators::failure() const {
  for (const auto& [key, communicator] : made_) {
    const Result<bool> settled = communicator->is_settled();
    if (!settled.is_ok()) return settled.status();
  }
  return Status::ok();
}

size_t Communicators::abort(std::shared_ptr<const cuda::Device> device, Deadline deadline) {
  struct Left {
    std::mutex mutex;
    std::condition_variable changed;
    size_t count = 0;
  };
  const auto left = std::make_shared<Left>();
  left->count = made_.size();
  for (auto& [key, communicator] : made_) {
    const auto abort_one = [left, device, library = library_, handle = communicator->release()] {
      {
        const cuda::ScopedContext context(*device);
        (void)library->call().CommAbort(handle);
      }
      const std::lock_guard lock(left->mutex);
      --left->count;
      left->changed.notify_all();
    };
    std::thread thread;
    if (start_thread(thread, "the abort of a communicator", abort_one).is_ok())
      thread.detach();
    else
      abort_one();
  }
  made_.clear();
  std::unique_lock lock(left->mutex);
  const auto time = std::chrono::nanoseconds(std::max<Nanos>(0, deadline.when() - monotonic_now()));
  left->changed.wait_for(lock, time, [&] { return left->count == 0; });
  return left->count;
}

void Communicators::finish(Deadline deadline) {
  for (auto& [key, communicator] : made_) communicator->finish(deadline);
  made_.clear();
}

}  // namespace rueda::nccl
