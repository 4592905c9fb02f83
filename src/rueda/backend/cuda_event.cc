#include "rueda/backend/cuda_event.h"

#include <sched.h>

#include <chrono>
#include <cstdint>
#include <thread>

namespace rueda::backend {
namespace {

constexpr Nanos kYieldBeforeSleep = 100 * kMicrosecond;  // most copies end sooner
constexpr std::chrono::microseconds kSleep(50);          // between two looks; CUDA's own wait has no deadline

// Null, CU_STREAM_LEGACY or CU_STREAM_PER_THREAD: streams of whichever context is current.
bool is_default(cuda::CUstream stream) { return reinterpret_cast<uintptr_t>(stream) <= 2; }

}  // namespace

Status CudaEvent::make_stream_wait(void* stream) {
  {
    // CUDA is not asked how the device is: if that has failed, it says so when the stream is made to wait.
    const std::lock_guard lock(mutex_);
    if (outcome_ && !outcome_->is_ok()) return *outcome_;
    if (sentence_) return *sentence_;
  }
  const auto handle = static_cast<cuda::CUstream>(stream);
  for (const auto& event : events_)
    if (Status s = wait_on(event->device(), handle, *event); !s.is_ok()) return s;
  if (!is_default(handle)) return Status::ok();
  for (const auto& device : others_)
    for (const auto& event : events_)
      if (Status s = wait_on(*device, handle, *event); !s.is_ok()) return s;
  return Status::ok();
}

Status CudaEvent::wait_on(const cuda::Device& device, cuda::CUstream stream, const cuda::Event& event) {
  const cuda::ScopedContext current(device);  // of the default stream, if that is meant
  if (!current.status().is_ok()) return current.status();
  if (Status s = device.check_stream(stream); !s.is_ok()) return s;
  const cuda::Driver& driver = device.driver();
  return driver.check(driver.cuStreamWaitEvent(stream, event.handle(), 0), "make the stream wait");
}

std::optional<Status> CudaEvent::outcome() {
  const std::lock_guard lock(mutex_);
  return outcome_locked();
}

std::optional<Status> CudaEvent::outcome_locked() {
  if (outcome_) return outcome_;
  Status first;
  for (const auto& event : events_) {
    const std::optional<Status> one = event->outcome();
    if (!one) return std::nullopt;
    if (first.is_ok()) first = *one;
  }
  outcome_ = sentence_ ? *sentence_ : std::move(first);
  return outcome_;
}

std::optional<Status> CudaEvent::wait(std::optional<Deadline> deadline) {
  const Nanos yield_until = monotonic_now() + kYieldBeforeSleep;
  for (;;) {
    if (std::optional<Status> known = outcome()) return known;
    const Nanos now = monotonic_now();
    if (deadline && deadline->is_past(now)) return std::nullopt;
    if (now < yield_until)
      sched_yield();
    else
      std::this_thread::sleep_for(kSleep);
  }
}

void CudaEvent::condemn(const Status& why) {
  const std::lock_guard lock(mutex_);
  if (!outcome_locked() && !sentence_) sentence_ = why;
}

void CudaEvent::fail(const Status& why) {
  const std::lock_guard lock(mutex_);
  if (!outcome_locked()) outcome_ = why;
}

}  // namespace rueda::backend
