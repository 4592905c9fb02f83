// The part of the C ABI that gives front ends events, copies and memory of a device, through its driver. It
// needs no engine, except to give up the results of an operation.

#include "rueda/memory/cuda/device.h"

#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "rueda/base/config_table.h"
#include "rueda/capi/state.h"
#include "rueda/memory/cuda/buffers.h"
#include "rueda/memory/cuda/events.h"
#include "rueda/rueda.h"
#include "rueda/runtime/gpu.h"

namespace {

using rueda::Code;
using rueda::Result;
using rueda::Status;
namespace capi = rueda::capi;
namespace cuda = rueda::cuda;

using Allocated = decltype(rueda::runtime::Tensor::allocated);

// One device as this process uses it.
struct Opened {
  explicit Opened(std::shared_ptr<const cuda::Device> opened) : device(std::move(opened)), pool(device) {}
  std::shared_ptr<const cuda::Device> device;
  cuda::EventPool pool;
};

// Results that their owner has given up, while a stream may still read them.
struct GivenUp {
  std::shared_ptr<cuda::Event> read;  // happens when the stream has come so far; null: nobody can tell
  std::vector<Allocated> results;
};

class Devices {
 public:
  Result<Opened*> open(int32_t index) {
    const std::lock_guard lock(mutex_);
    if (const auto found = opened_.find(index); found != opened_.end()) return found->second.get();
    if (Status s = load(); !s.is_ok()) return s;
    Result<std::shared_ptr<const cuda::Device>> device = cuda::Device::open(driver_, index);
    if (!device.is_ok()) return device.status();
    auto& kept = opened_[index] = std::make_unique<Opened>(std::move(device).value());
    return kept.get();
  }
  // Null if there is none. Opens no device: a context takes memory there.
  std::shared_ptr<const cuda::Driver> driver() {
    const std::lock_guard lock(mutex_);
    return load().is_ok() ? driver_ : nullptr;
  }

  Result<void*> lend_event(Opened& on) {
    Result<std::shared_ptr<cuda::Event>> taken = on.pool.take();
    if (!taken.is_ok()) return taken.status();
    void* const handle = taken.value()->handle();
    const std::lock_guard lock(mutex_);
    drop_read();
    lent_[handle] = std::move(taken).value();
    return handle;
  }
  void take_event_back(void* event) {
    const std::lock_guard lock(mutex_);
    lent_.erase(event);
  }
  void keep_until_read(GivenUp given_up) {
    const std::lock_guard lock(mutex_);
    drop_read();
    given_up_.push_back(std::move(given_up));
  }

 private:
  Status load() {
    if (driver_) return Status::ok();
    const Result<rueda::Config> config =
        rueda::parse_config([](const char* name) { return std::getenv(name); });
    if (!config.is_ok()) return config.status();
    Result<std::shared_ptr<const cuda::Driver>> loaded = rueda::runtime::load_cuda(config.value());
    if (!loaded.is_ok()) return {Code::kUnsupported, loaded.status().why};
    driver_ = std::move(loaded).value();
    return Status::ok();
  }
  void drop_read() {
    std::erase_if(given_up_, [](const GivenUp& one) { return one.read && one.read->outcome().has_value(); });
  }

  std::mutex mutex_;
  std::shared_ptr<const cuda::Driver> driver_;
  std::map<int32_t, std::unique_ptr<Opened>> opened_;
  std::unordered_map<void*, std::shared_ptr<cuda::Event>> lent_;
  std::vector<GivenUp> given_up_;
};

// Never destroyed: the driver may be gone when static objects are, and threads may go on.
Devices& devices() {
  static auto* const only = new Devices;
  return *only;
}

// Runs body(opened) with the context of the device. Returns the code of the first failure.
template <typename Body>
int on_device(int32_t index, Body body) {
  const Result<Opened*> opened = devices().open(index);
  if (!opened.is_ok()) return capi::fail(opened.status());
  const cuda::ScopedContext context(*opened.value()->device);
  if (!context.status().is_ok()) return capi::fail(context.status());
  const Status status = body(*opened.value());
  return status.is_ok() ? RUEDA_OK : capi::fail(status);
}

Status record(const Opened& on, cuda::CUevent event, cuda::CUstream stream) {
  if (Status s = on.device->check_own_stream(stream); !s.is_ok()) return s;
  const cuda::Driver& driver = on.device->driver();
  return driver.check(driver.cuEventRecord(event, stream), "record an event");
}

Status missing(const char* what) { return {Code::kInvalidArgument, std::string(what) + " must be given."}; }

}  // namespace

extern "C" {

int rueda_device_of(const void* address) {
  const std::shared_ptr<const cuda::Driver> driver = devices().driver();
  return driver ? cuda::device_of(*driver, address) : -1;
}

int rueda_device_of_stream(void* stream) {
  const std::shared_ptr<const cuda::Driver> driver = devices().driver();
  return driver ? cuda::device_of_stream(*driver, static_cast<cuda::CUstream>(stream)) : -1;
}

int rueda_alloc_on_device(int32_t device, size_t bytes, void** memory) {
  if (memory == nullptr) return capi::fail(missing("rueda_alloc_on_device: memory"));
  return on_device(device, [&](const Opened& on) {
    Result<cuda::DeviceBuffer> made = cuda::DeviceBuffer::allocate(on.device, bytes == 0 ? 1 : bytes);
    if (!made.is_ok()) return made.status();
    *memory = made.value().release();
    return Status::ok();
  });
}

void rueda_release_on_device(int32_t device, void* memory) {
  if (memory == nullptr) return;
  on_device(device, [&](const Opened& on) {
    (void)cuda::DeviceBuffer::adopt(on.device, memory);  // frees it, in a thread of rueda if one does that
    return Status::ok();
  });
}

int rueda_copy_on_stream(int32_t device, void* stream, void* to, const void* from, size_t bytes) {
  return on_device(device, [&](const Opened& on) {
    const cuda::Driver& driver = on.device->driver();
    return driver.check(driver.cuMemcpyAsync(cuda::address_of(to), cuda::address_of(from), bytes,
                                             static_cast<cuda::CUstream>(stream)),
                        "copy a result");
  });
}

int rueda_make_event(int32_t device, void** event) {
  if (event == nullptr) return capi::fail(missing("rueda_make_event: event"));
  return on_device(device, [&](Opened& on) {
    const Result<void*> lent = devices().lend_event(on);
    if (lent.is_ok()) *event = lent.value();
    return lent.status();
  });
}

int rueda_record_event(int32_t device, void* event, void* stream) {
  return on_device(device, [&](const Opened& on) {
    return record(on, static_cast<cuda::CUevent>(event), static_cast<cuda::CUstream>(stream));
  });
}

void rueda_release_event(int32_t, void* event) { devices().take_event_back(event); }

int rueda_order_streams(int32_t device, void* before, void* after) {
  return on_device(device, [&](Opened& on) {
    const Result<std::shared_ptr<cuda::Event>> event = on.pool.take();
    if (!event.is_ok()) return event.status();
    const cuda::CUevent handle = event.value()->handle();
    if (Status s = record(on, handle, static_cast<cuda::CUstream>(before)); !s.is_ok()) return s;
    const cuda::Driver& driver = on.device->driver();
    return driver.check(driver.cuStreamWaitEvent(static_cast<cuda::CUstream>(after), handle, 0),
                        "make a stream wait");
  });
}

int rueda_release_on_stream(int64_t handle, int32_t device, void* stream) {
  const std::shared_ptr<rueda::runtime::Engine> engine = capi::engine();
  if (!engine) return RUEDA_OK;  // shutdown has released everything
  const std::shared_ptr<rueda::runtime::Operation> operation = engine->operations().find(handle);
  GivenUp given_up;
  // Before an operation is done, its tensors belong to the engine, and nobody can have read a result.
  for (size_t i = 0; operation && operation->is_done && i < operation->tensors.size(); ++i)
    if (operation->tensors[i].allocated)
      given_up.results.push_back(std::move(operation->tensors[i].allocated));
  engine->operations().release(handle);
  if (given_up.results.empty()) return RUEDA_OK;
  const int code = on_device(device, [&](Opened& on) {
    Result<std::shared_ptr<cuda::Event>> event = on.pool.take();
    if (!event.is_ok()) return event.status();
    Status recorded = record(on, event.value()->handle(), static_cast<cuda::CUstream>(stream));
    if (recorded.is_ok()) given_up.read = std::move(event).value();
    return recorded;
  });
  devices().keep_until_read(std::move(given_up));
  return code;
}

}  // extern "C"
