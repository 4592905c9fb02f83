#include "rueda/memory/cuda/streams.h"

#include <utility>

namespace rueda::cuda {
namespace {

void run_once(void* argument) {
  const std::unique_ptr<std::function<void()>> function(static_cast<std::function<void()>*>(argument));
  (*function)();
}

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
  auto owned = std::make_unique<std::function<void()>>(std::move(function));
  const Driver& driver = device_->driver();
  const Status status =
      driver.check(driver.cuLaunchHostFunc(stream_, run_once, owned.get()), "enqueue a function");
  if (status.is_ok()) (void)owned.release();  // run_once() owns it
  return status;
}

}  // namespace rueda::cuda
