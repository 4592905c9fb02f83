// What was launched on the stream of this rank's GPU and has not ended there: how much of the stream's queue
// it takes, and whether it has failed. Engine thread only, except for what is marked.
#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "rueda/backend/cuda_event.h"

namespace rueda::nccl {

class Launched {
 public:
  // A call, or a part of one, is held back while it and what is launched would take more entries in the queue
  // of the stream. CUDA has 1024.
  static constexpr size_t kMostQueued = 900;

  // The function that it returns says whether NCCL has work on the device, for which CUDA would let a thread
  // that frees memory wait, and perhaps others with it. Any thread may call it, also after the end of this
  // object.
  [[nodiscard]] std::function<bool()> is_busy() const;

  [[nodiscard]] bool has_room(size_t entries) const {
    const size_t taken = queued_ + entries_;
    return taken == 0 || taken + entries <= kMostQueued;
  }
  [[nodiscard]] bool is_empty() const { return launched_.empty(); }

  // A call is put on the stream; until end() nothing is freed.
  void begin(size_t entries) {
    entries_ += entries;
    at_work_->is_launching = true;
  }
  [[nodiscard]] bool has_unkept() const { return entries_ > 0; }
  // This event happens when everything that was enqueued until now has ended.
  void keep(std::shared_ptr<backend::CudaEvent> event);
  // Nothing more of that call is put on the stream.
  void end() {
    entries_ = 0;
    at_work_->is_launching = false;
  }

  // Forgets what has ended. Returns the first failure.
  Status watch();
  // Waits until all has ended; false at the deadline.
  [[nodiscard]] bool wait(Deadline deadline) const;
  // As CudaEvent::condemn() and fail(), for all.
  void condemn(const Status& why) const;
  void fail(const Status& why) const;
  void forget() {
    launched_.clear();
    queued_ = 0;
    end();
  }

 private:
  struct One {
    std::shared_ptr<backend::CudaEvent> event;
    size_t entries = 0;  // in the queue of the stream, about
  };
  struct AtWork {
    std::atomic<bool> is_launching = false;
    std::mutex mutex;
    std::shared_ptr<backend::CudaEvent> last;  // of what was launched
  };

  std::shared_ptr<AtWork> at_work_ = std::make_shared<AtWork>();
  std::deque<One> launched_;
  size_t queued_ = 0;   // entries that they take
  size_t entries_ = 0;  // of the call on its way, without an event yet
};

}  // namespace rueda::nccl
