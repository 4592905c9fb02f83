// Frees memory elsewhere. CUDA frees memory only when the device has done all its work, and the call waits
// for that. With NCCL that work may wait for another rank, which may wait for the engine of this one: no
// thread of the engine may then free anything. Any thread.
#pragma once

#include <cstddef>
#include <functional>

#include "rueda/base/clock.h"

namespace rueda::cuda {

// Nor is anything freed while NCCL works, unless memory is short: the driver may let other calls of the
// process wait as well, so that nobody could abort NCCL when a rank is lost.
//
// While one of these lives, a thread of its own frees device memory and pinned memory in this process. The
// last one waits a few seconds until everything is freed. A device that does not come to an end keeps the
// thread after that, and the process goes on.
class DeferredFrees {
 public:
  static constexpr Nanos kPatience = 5 * kSecond;
  // is_busy: whether its owner has given the device work that may wait for other ranks. Called by the thread
  // that frees, until this object dies.
  explicit DeferredFrees(std::function<bool()> is_busy = {}, Nanos patience = kPatience);
  ~DeferredFrees();
  DeferredFrees(const DeferredFrees&) = delete;
  DeferredFrees& operator=(const DeferredFrees&) = delete;

 private:
  Nanos patience_;
};

// Hands the work to that thread. False if there is none; then the caller frees. bytes: of the device, which
// become free.
bool free_elsewhere(std::function<void()> free, size_t bytes = 0);
// Whether something was waiting to be freed. Waits for it, until the deadline.
bool wait_for_frees(Deadline deadline);

}  // namespace rueda::cuda
