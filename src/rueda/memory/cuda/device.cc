#include "rueda/memory/cuda/device.h"

#include <cstdlib>
#include <utility>

namespace rueda::cuda {
namespace {

// What CUDA_VISIBLE_DEVICES has to do with a device that is not there.
std::string visible_devices() {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return visible == nullptr ? std::string("CUDA_VISIBLE_DEVICES is not set")
                            : "CUDA_VISIBLE_DEVICES='" + std::string(visible) + "'";
}

Status no_device(int32_t ordinal, int count) {
  return {Code::kUnavailable, "this process has no CUDA device " + std::to_string(ordinal) + ": CUDA finds " +
                                  std::to_string(count) + " devices (" + visible_devices() +
                                  "); make a device visible to every rank."};
}

// What CUDA knows of an address; of memory that it does not know, what is here.
struct Memory {
  unsigned kind = 0;
  int ordinal = -1;
  CUcontext context = nullptr;  // null as well: memory from pools and from mapped allocations has none
  CUdeviceptr start = 0;        // of its allocation
  size_t bytes = 0;             // 0: it was not asked for, or is not known
};

// has_allocation: asks for the allocation, too, which CUDA does not know of all memory.
Result<Memory> ask(const Driver& driver, const void* address, bool has_allocation = false) {
  Memory memory;
  CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                      CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                      CU_POINTER_ATTRIBUTE_RANGE_SIZE};
  void* values[] = {&memory.kind, &memory.ordinal, &memory.context, &memory.start, &memory.bytes};
  const CUresult asked =
      driver.cuPointerGetAttributes(has_allocation ? 5 : 3, attributes, values, address_of(address));
  if (asked == CUDA_SUCCESS) return memory;
  if (asked == CUDA_ERROR_INVALID_VALUE && has_allocation) return ask(driver, address);
  if (asked == CUDA_ERROR_INVALID_VALUE) return Memory{};
  return driver.check(asked,
                      "tell where the memory of a tensor is");  // as it does when the device has failed
}

int32_t device_of(const Memory& memory) { return memory.kind == kMemoryTypeDevice ? memory.ordinal : -1; }

// The last one of this thread that lives and has made its context current.
thread_local const ScopedContext* innermost = nullptr;

}  // namespace

Result<std::shared_ptr<const Device>> Device::open(std::shared_ptr<const Driver> driver, int32_t ordinal) {
  const CUresult initialised = driver->cuInit(0);
  if (initialised == CUDA_ERROR_NO_DEVICE) return no_device(ordinal, 0);
  if (Status s = driver->check(initialised, "be initialised"); !s.is_ok()) return s;
  int count = 0;
  if (Status s = driver->check(driver->cuDeviceGetCount(&count), "count its devices"); !s.is_ok()) return s;
  if (ordinal < 0 || ordinal >= count) return no_device(ordinal, count);
  std::shared_ptr<Device> device(new Device(std::move(driver), ordinal));
  if (Status s = device->retain(); !s.is_ok()) return s;
  return std::shared_ptr<const Device>(std::move(device));
}

Status Device::retain() {
  const std::string which = "device " + std::to_string(ordinal_);
  if (Status s = driver_->check(driver_->cuDeviceGet(&device_, ordinal_), "open " + which); !s.is_ok())
    return s;
  char name[256] = {};
  if (driver_->cuDeviceGetName(name, sizeof(name) - 1, device_) == CUDA_SUCCESS) name_ = name;
  CUresult identified = driver_->cuDeviceGetUuid(&gpu_uuid_, device_);
  if (identified == CUDA_SUCCESS) identified = driver_->uuid_of_instance(&uuid_, device_);
  if (Status s = driver_->check(identified, "identify " + which); !s.is_ok()) return s;
  CUcontext context = nullptr;
  if (Status s = driver_->check(driver_->cuDevicePrimaryCtxRetain(&context, device_), "use " + which);
      !s.is_ok())
    return s;
  context_ = context;
  return Status::ok();
}

Device::~Device() {
  if (context_ != nullptr) (void)driver_->cuDevicePrimaryCtxRelease(device_);
}

size_t Device::free_bytes() const {
  const ScopedContext current(*this);
  size_t free = 0, total = 0;
  if (!current.status().is_ok() || driver_->cuMemGetInfo(&free, &total) != CUDA_SUCCESS) return 0;
  return free;
}

Status Device::check_memory(const void* memory, MemoryRange* allocation) const {
  if (memory == nullptr) return Status::ok();
  const ScopedContext current(*this);
  if (!current.status().is_ok()) return current.status();
  const Result<Memory> asked = ask(*driver_, memory, allocation != nullptr);
  if (!asked.is_ok()) return asked.status();
  const Memory& known = asked.value();
  if (allocation != nullptr) *allocation = {.begin = known.start, .end = known.start + known.bytes};
  const int32_t owner = device_of(known);
  if (owner < 0)
    return {Code::kInvalidArgument, "its memory is not memory of a CUDA device, although device " +
                                        std::to_string(ordinal_) + " was given."};
  if (owner != ordinal_)
    return {Code::kInvalidArgument, "its memory is on CUDA device " + std::to_string(owner) +
                                        ", but device " + std::to_string(ordinal_) +
                                        " was given; give input and output on the "
                                        "device that is named."};
  if (known.context == nullptr || known.context == context_) return Status::ok();
  return {Code::kInvalidArgument,
          "its memory belongs to another CUDA context than the primary one of device " +
              std::to_string(ordinal_) +
              "; allocate it in the primary context, as PyTorch, JAX and CuPy do."};
}

Status Device::check_stream(CUstream stream) const {
  if (is_open_stream(stream)) return Status::ok();
  const ScopedContext current(*this);
  if (!current.status().is_ok()) return current.status();
  CUcontext context = nullptr;
  if (driver_->cuStreamGetCtx(stream, &context) != CUDA_SUCCESS)
    return {Code::kInvalidArgument, "the handle is not a stream of CUDA in this process."};
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult asked = driver_->cuStreamIsCapturing(stream, &status);
  // The default stream is refused while any other stream of the context is being captured.
  if (asked == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_NONE) return Status::ok();
  if (asked == CUDA_SUCCESS || asked == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
    return {Code::kUnsupported,
            "the stream is being captured into a CUDA graph, and a collective cannot be captured; run it "
            "outside of the capture."};
  return driver_->check(asked, "use the stream");
}

Status Device::check_own_stream(CUstream stream) const {
  if (is_open_stream(stream)) return Status::ok();
  const ScopedContext current(*this);  // that of a default stream
  if (!current.status().is_ok()) return current.status();
  if (Status refused = check_stream(stream); !refused.is_ok()) return {Code::kInvalidArgument, refused.why};
  if (is_open_stream(stream)) return Status::ok();
  return {Code::kInvalidArgument,
          "the stream is not one of device " + std::to_string(ordinal_) +
              " in its primary CUDA context; use a stream of the device that has the tensor, made in the "
              "primary context, as PyTorch, JAX and CuPy do."};
}

bool Device::is_open_stream(CUstream stream) const {
  CUcontext context = nullptr;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return driver_->cuStreamGetCtx(stream, &context) == CUDA_SUCCESS && context == context_ &&
         driver_->cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
         status == CU_STREAM_CAPTURE_STATUS_NONE;
}

ScopedContext::ScopedContext(const Device& device) : driver_(device.driver()), context_(device.context()) {
  if (innermost != nullptr && innermost->context_ == context_) return;
  status_ = driver_.check(driver_.cuCtxPushCurrent(context_),
                          "make device " + std::to_string(device.ordinal()) + " current");
  if (!status_.is_ok()) return;
  (void)driver_.cuThreadExchangeStreamCaptureMode(&mode_);
  has_pushed_ = true;
  outer_ = std::exchange(innermost, this);
}

ScopedContext::~ScopedContext() {
  if (!has_pushed_) return;
  innermost = outer_;
  (void)driver_.cuThreadExchangeStreamCaptureMode(&mode_);
  CUcontext mine = nullptr;
  (void)driver_.cuCtxPopCurrent(&mine);
}

Result<std::shared_ptr<const Device>> Devices::get(int32_t ordinal) {
  const std::lock_guard lock(mutex_);
  const auto found = open_.find(ordinal);
  if (found != open_.end()) return found->second;
  Result<std::shared_ptr<const Device>> opened = Device::open(driver_, ordinal);
  if (opened.is_ok()) open_.emplace(ordinal, opened.value());
  return opened;
}

int32_t device_of(const Driver& driver, const void* memory) {
  const Result<Memory> asked = ask(driver, memory);
  return asked.is_ok() ? device_of(asked.value()) : -1;
}

int32_t device_of_stream(const Driver& driver, CUstream stream) {
  CUcontext context = nullptr;
  if (driver.cuStreamGetCtx(stream, &context) != CUDA_SUCCESS) return -1;
  if (driver.cuCtxPushCurrent(context) != CUDA_SUCCESS) return -1;
  CUdevice wanted = 0, device = 0;
  int count = 0;
  const CUresult asked = driver.cuCtxGetDevice(&wanted);
  CUcontext popped = nullptr;
  (void)driver.cuCtxPopCurrent(&popped);
  if (asked != CUDA_SUCCESS || driver.cuDeviceGetCount(&count) != CUDA_SUCCESS) return -1;
  for (int ordinal = 0; ordinal < count; ++ordinal)
    if (driver.cuDeviceGet(&device, ordinal) == CUDA_SUCCESS && device == wanted) return ordinal;
  return -1;
}

Result<int32_t> usual_ordinal(const Driver& driver, int32_t local_rank) {
  int count = 0;
  const CUresult started = driver.cuInit(0);
  Status status;
  if (started != CUDA_ERROR_NO_DEVICE) status = driver.check(started, "be initialised");
  if (started == CUDA_SUCCESS) status = driver.check(driver.cuDeviceGetCount(&count), "count the devices");
  if (!status.is_ok()) return status;
  if (count == 0)
    return Status(Code::kUnavailable, "this process sees no GPU; look at CUDA_VISIBLE_DEVICES.");
  return static_cast<int32_t>(local_rank % count);
}

}  // namespace rueda::cuda
