#include "rueda/memory/cuda/streams.h"

#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <utility>

namespace rueda::cuda {
namespace {

// The functions that streams have yet to call, by number. The process owns them, because the driver does not
// say which ones it will never call after a device has failed.
class PendingFunctions {
 public:
  uintptr_t add(std::function<void()> function) {
    const std::lock_guard lock(mutex_);
    functions_.emplace(++last_, std::move(function));
    return last_;
  }
  std::function<void()> take(uintptr_t number) {
    const std::lock_guard lock(mutex_);
    auto node = functions_.extract(number);
    return std::move(node.mapped());
  }

 private:
  std::mutex mutex_;
  std::unordered_map<uintptr_t, std::function<void()>> functions_;
  uintptr_t last_ = 0;
};

PendingFunctions& pending_functions() {
  static auto* const functions = new PendingFunctions;  // a thread of CUDA may call while the process exits
  return *functions;
}

void run_once(void* number) { pending_functions().take(reinterpret_cast<uintptr_t>(number))(); }

}  // namespace

Result<std::unique_ptr<Stream>> Stream::create(std::shared_ptr<const Device> device) {
  std::unique_ptr<Stream> stream(new Stream(std::move(device)));
  const Driver& driver = stream->device_->driver();
  const ScopedContext current(*stream->device_);
  if (!current.status().is_ok()) return current.status();
  int least = 0, greatest = 0;
  if (driver.cuCtxGetStreamPriorityRange(&least, &greatest) != CUDA_SUCCESS) greatest = 0;
  const CUresult made = driver.cuStreamCreateWithPriority(&stream->stream_, kStreamNonBlocking, greatest);
  if (Status s = driver.check(made, "create a stream"); !s.is_ok()) return s;
  return stream;
}

Stream::~Stream() {
  if (stream_ == nullptr) return;
  const ScopedContext current(*device_);
  if (current.status().is_ok()) (void)device_->driver().cuStreamDestroy(stream_);
}

Status Stream::wait(CUevent event) {
  const ScopedContext current(*device_);
  if (!current.status().is_ok()) return current.status();
  const Driver& driver = device_->driver();
  return driver.check(driver.cuStreamWaitEvent(stream_, event, 0), "make a stream wait for an event");
}

Status Stream::record(const Event& event) {
  const ScopedContext current(*device_);
  if (!current.status().is_ok()) return current.status();
  const Driver& driver = device_->driver();
  return driver.check(driver.cuEventRecord(event.handle(), stream_), "record an event");
}

Status Stream::copy(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return Status::ok();
  const ScopedContext current(*device_);
  if (!current.status().is_ok()) return current.status();
  const Driver& driver = device_->driver();
  return driver.check(driver.cuMemcpyAsync(address_of(to), address_of(from), bytes, stream_),
                      "copy " + std::to_string(bytes) + " bytes");
}

Status Stream::call(std::function<void()> function) {
  const ScopedContext current(*device_);
  if (!current.status().is_ok()) return current.status();
  const uintptr_t number = pending_functions().add(std::move(function));
  const Driver& driver = device_->driver();
  const CUresult launched = driver.cuLaunchHostFunc(stream_, run_once, reinterpret_cast<void*>(number));
  if (launched != CUDA_SUCCESS) (void)pending_functions().take(number);
  return driver.check(launched, "enqueue a function");
}

}  // namespace rueda::cuda
