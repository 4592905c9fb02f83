// The functions of the tests' libcuda that rueda calls (driver_api.h lists them): devices, contexts, memory,
// and how functions are found. streams.cc has streams, events and kernels.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "api.h"

using namespace fake_cuda;

namespace {

// The functions by the names that cuGetProcAddress takes. There are others, with a number at the end, for
// programs that look for symbols.
const std::map<std::string, void*>& functions() {
  static const auto* const all = new std::map<std::string, void*>{
#define FAKE_CUDA_ENTRY(name, arguments) {#name, reinterpret_cast<void*>(&name)},
      RUEDA_CUDA_FUNCTIONS(FAKE_CUDA_ENTRY)
#undef FAKE_CUDA_ENTRY
  };
  return *all;
}

CUresult check_device(const Machine& machine, CUdevice device) {
  const bool is_known = device >= 0 && static_cast<size_t>(device) < machine.visible.size();
  if (!machine.is_initialised) return CUDA_ERROR_NOT_INITIALIZED;
  return is_known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

// Frees what an allocation of this kind has at the address, after all work of its device.
CUresult free_memory(uintptr_t address, bool is_device) {
  Machine& machine = Machine::get();
  std::unique_lock lock(machine.mutex);
  if (const CUresult unsafe = machine.check_unsafe(); unsafe != CUDA_SUCCESS) return unsafe;
  const auto found = machine.allocations.find(address);
  if (found == machine.allocations.end() || found->second.is_device != is_device || found->second.is_mapped)
    return CUDA_ERROR_INVALID_VALUE;
  Context* const context = found->second.context;
  if (context != nullptr) machine.drain(lock, context);
  const Allocation gone = machine.allocations.extract(address).mapped();
  if (is_device) machine.free_bytes[machine.index_of(gone.context)] += gone.bytes;
  (is_device ? machine.device_bytes : machine.pinned_bytes) -= gone.bytes;
  if (gone.descriptor < 0) {
    std::free(reinterpret_cast<void*>(address));
    return CUDA_SUCCESS;
  }
  munmap(reinterpret_cast<void*>(address), gone.bytes);
  close(gone.descriptor);
  return CUDA_SUCCESS;
}

// From this size on, memory of a device can be exported.
constexpr size_t kShareableBytes = 1 << 20;

// Memory that other processes can map through a descriptor of this one.
void* allocate_shareable(size_t bytes, int& descriptor) {
  descriptor = memfd_create("fake_cuda", MFD_CLOEXEC);
  if (descriptor < 0 || ftruncate(descriptor, static_cast<off_t>(bytes)) != 0) return nullptr;
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

// What a handle says here.
struct Exported {
  pid_t process;
  int descriptor;
  size_t bytes;
};
static_assert(sizeof(Exported) <= sizeof(CUipcMemHandle));

void* allocate(size_t bytes) { return std::aligned_alloc(512, (bytes + 511) / 512 * 512); }

}  // namespace

FAKE_CUDA_API CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device);

FAKE_CUDA_API CUresult cuGetProcAddress(const char* name, void** function, int version, uint64_t) {
  *function = nullptr;
  const auto found = functions().find(name);
  if (found == functions().end() || Machine::get().is_missing(name)) return CUDA_ERROR_NOT_FOUND;
  *function = found->second;
  if (version >= kUuidVersion && found->first == "cuDeviceGetUuid")
    *function = reinterpret_cast<void*>(&cuDeviceGetUuid_v2);
  return CUDA_SUCCESS;
}

FAKE_CUDA_API CUresult cuGetProcAddress_v2(const char* name, void** function, int version, uint64_t flags,
                                           int* status) {
  const CUresult result = cuGetProcAddress(name, function, version, flags);
  if (status != nullptr) *status = result == CUDA_SUCCESS ? 0 : 1;
  return result;
}

CUresult cuInit(unsigned) {
  FAKE_CUDA_ENTER(cuInit);
  const std::lock_guard lock(machine.mutex);
  if (machine.visible.empty()) return CUDA_ERROR_NO_DEVICE;
  machine.is_initialised = true;
  return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int* version) {
  *version = Machine::get().version;
  return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char** name) {
  static const std::map<int, const char*> names = {{0, "CUDA_SUCCESS"},
                                                   {1, "CUDA_ERROR_INVALID_VALUE"},
                                                   {2, "CUDA_ERROR_OUT_OF_MEMORY"},
                                                   {3, "CUDA_ERROR_NOT_INITIALIZED"},
                                                   {100, "CUDA_ERROR_NO_DEVICE"},
                                                   {101, "CUDA_ERROR_INVALID_DEVICE"},
                                                   {201, "CUDA_ERROR_INVALID_CONTEXT"},
                                                   {217, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED"},
                                                   {218, "CUDA_ERROR_INVALID_PTX"},
                                                   {400, "CUDA_ERROR_INVALID_HANDLE"},
                                                   {500, "CUDA_ERROR_NOT_FOUND"},
                                                   {600, "CUDA_ERROR_NOT_READY"},
                                                   {700, "CUDA_ERROR_ILLEGAL_ADDRESS"},
                                                   {719, "CUDA_ERROR_LAUNCH_FAILED"},
                                                   {907, "CUDA_ERROR_CAPTURED_EVENT"}};
  const auto found = names.find(error);
  *name = found == names.end() ? nullptr : found->second;
  return found == names.end() ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char** text) {
  static const std::map<int, const char*> texts = {{2, "out of memory"},
                                                   {700, "an illegal memory access was encountered"},
                                                   {719, "unspecified launch failure"}};
  const auto found = texts.find(error);
  *text = found == texts.end() ? "a failure of the tests" : found->second;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  FAKE_CUDA_ENTER(cuDeviceGetCount);
  *count = static_cast<int>(machine.visible.size());
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  FAKE_CUDA_ENTER(cuDeviceGet);
  *device = ordinal;
  return check_device(machine, ordinal);
}

CUresult cuDeviceGetName(char* name, int bytes, CUdevice device) {
  FAKE_CUDA_ENTER(cuDeviceGetName);
  if (const CUresult bad = check_device(machine, device); bad != CUDA_SUCCESS) return bad;
  std::strncpy(name, "Device of the tests", static_cast<size_t>(bytes));
  return CUDA_SUCCESS;
}

// Equal for one device of the machine, whatever its number in this process is; of all MIG instances, the
// same.
CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  FAKE_CUDA_ENTER(cuDeviceGetUuid);
  if (const CUresult bad = check_device(machine, device); bad != CUDA_SUCCESS) return bad;
  *uuid = {};
  uuid->bytes[0] = 'F';
  if (machine.are_instances) return CUDA_SUCCESS;
  uuid->bytes[15] = static_cast<unsigned char>(machine.visible[static_cast<size_t>(device)]);
  return CUDA_SUCCESS;
}

// Each MIG instance has its own.
CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  const CUresult result = cuDeviceGetUuid(uuid, device);
  if (result == CUDA_SUCCESS)
    uuid->bytes[15] = static_cast<unsigned char>(Machine::get().visible[static_cast<size_t>(device)]);
  return result;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  FAKE_CUDA_ENTER(cuDevicePrimaryCtxRetain);
  if (const CUresult bad = check_device(machine, device); bad != CUDA_SUCCESS) return bad;
  *context = handle_of(machine.primary[static_cast<size_t>(device)].get());
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) { return check_device(Machine::get(), device); }

CUresult cuCtxPushCurrent(CUcontext context) {
  FAKE_CUDA_ENTER(cuCtxPushCurrent);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  current_contexts().push_back(context_of(context));
  return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext* context) {
  if (current_contexts().empty()) return CUDA_ERROR_INVALID_CONTEXT;
  *context = handle_of(current_contexts().back());
  current_contexts().pop_back();
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice* device) {
  FAKE_CUDA_ENTER(cuCtxGetDevice);
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *device = current_context()->device;
  return CUDA_SUCCESS;
}

CUresult cuMemGetInfo(size_t* free, size_t* total) {
  FAKE_CUDA_ENTER(cuMemGetInfo);
  const std::lock_guard lock(machine.mutex);
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *free = machine.free_bytes[machine.index_of(current_context())];
  *total = machine.memory_bytes;
  return CUDA_SUCCESS;
}

CUresult cuMemAlloc(CUdeviceptr* address, size_t bytes) {
  FAKE_CUDA_ENTER(cuMemAlloc);
  Context* const context = current_context();
  const std::lock_guard lock(machine.mutex);
  if (const CUresult unsafe = machine.check_unsafe(); unsafe != CUDA_SUCCESS) return unsafe;
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult failed = machine.failure_of(context); failed != CUDA_SUCCESS) return failed;
  size_t& left = machine.free_bytes[machine.index_of(context)];
  if (bytes > left) return CUDA_ERROR_OUT_OF_MEMORY;
  int descriptor = -1;
  void* const memory = bytes < kShareableBytes ? allocate(bytes) : allocate_shareable(bytes, descriptor);
  if (memory == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  spoil(memory, 0xA5, bytes);
  left -= bytes;
  machine.device_bytes += bytes;
  machine.allocations[reinterpret_cast<uintptr_t>(memory)] = {
      .bytes = bytes, .context = context, .descriptor = descriptor};
  *address = reinterpret_cast<CUdeviceptr>(memory);
  return CUDA_SUCCESS;
}

CUresult cuMemFree(CUdeviceptr address) { return free_memory(static_cast<uintptr_t>(address), true); }

CUresult cuMemHostAlloc(void** address, size_t bytes, unsigned) {
  FAKE_CUDA_ENTER(cuMemHostAlloc);
  Context* const context = current_context();
  const std::lock_guard lock(machine.mutex);
  if (const CUresult unsafe = machine.check_unsafe(); unsafe != CUDA_SUCCESS) return unsafe;
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *address = allocate(bytes);
  if (*address == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  spoil(*address, 0x5A, bytes);
  machine.pinned_bytes += bytes;
  machine.allocations[reinterpret_cast<uintptr_t>(*address)] = {
      .bytes = bytes, .context = context, .is_device = false};
  return CUDA_SUCCESS;
}

CUresult cuMemFreeHost(void* address) { return free_memory(reinterpret_cast<uintptr_t>(address), false); }

CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address) {
  FAKE_CUDA_ENTER(cuIpcGetMemHandle);
  const std::lock_guard lock(machine.mutex);
  const auto found = machine.allocations.find(static_cast<uintptr_t>(address));
  if (found == machine.allocations.end() || found->second.descriptor < 0) return CUDA_ERROR_INVALID_VALUE;
  const Exported exported{getpid(), found->second.descriptor, found->second.bytes};
  *handle = {};
  std::memcpy(handle, &exported, sizeof(exported));
  return CUDA_SUCCESS;
}

// CUDA refuses handles of the same process. Here they are mapped, because ranks may be threads in tests.
CUresult cuIpcOpenMemHandle(CUdeviceptr* address, CUipcMemHandle handle, unsigned) {
  FAKE_CUDA_ENTER(cuIpcOpenMemHandle);
  Context* const context = current_context();
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  Exported exported{};
  std::memcpy(&exported, &handle, sizeof(exported));
  const std::string path =
      "/proc/" + std::to_string(exported.process) + "/fd/" + std::to_string(exported.descriptor);
  const int descriptor = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) return CUDA_ERROR_INVALID_VALUE;
  void* const memory = mmap(nullptr, exported.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  close(descriptor);
  if (memory == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  const std::lock_guard lock(machine.mutex);
  machine.allocations[reinterpret_cast<uintptr_t>(memory)] = {
      .bytes = exported.bytes, .context = context, .is_mapped = true};
  *address = reinterpret_cast<CUdeviceptr>(memory);
  return CUDA_SUCCESS;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
  FAKE_CUDA_ENTER(cuIpcCloseMemHandle);
  std::unique_lock lock(machine.mutex);
  if (const CUresult unsafe = machine.check_unsafe(); unsafe != CUDA_SUCCESS) return unsafe;
  const auto found = machine.allocations.find(static_cast<uintptr_t>(address));
  if (found == machine.allocations.end() || !found->second.is_mapped) return CUDA_ERROR_INVALID_VALUE;
  machine.drain(lock, found->second.context);
  munmap(reinterpret_cast<void*>(address), found->second.bytes);
  machine.allocations.erase(static_cast<uintptr_t>(address));
  return CUDA_SUCCESS;
}

namespace {

// Null, or what stands for it, of memory that CUDA does not know. The machine's mutex is held.
CUresult attribute_of(const Allocation* memory, CUpointer_attribute attribute, void* value) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      *static_cast<CUcontext*>(value) = memory == nullptr ? nullptr : handle_of(memory->context);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *static_cast<unsigned*>(value) = memory == nullptr ? 0 : memory->is_device ? kMemoryTypeDevice : 1;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *static_cast<int*>(value) = memory == nullptr ? -2 : memory->context->device;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: {
      const auto& allocations = Machine::get().allocations;
      const auto is_it = [memory](const auto& entry) { return &entry.second == memory; };
      const auto found = std::ranges::find_if(allocations, is_it);
      if (found == allocations.end()) return CUDA_ERROR_INVALID_VALUE;
      if (attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE)
        *static_cast<size_t*>(value) = memory->bytes;
      else
        *static_cast<CUdeviceptr*>(value) = found->first;
      return CUDA_SUCCESS;
    }
  }
  return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes, void** values,
                                CUdeviceptr address) {
  FAKE_CUDA_ENTER(cuPointerGetAttributes);
  const std::lock_guard lock(machine.mutex);
  const Allocation* const found = machine.find(address, 1);
  for (unsigned i = 0; i < count; ++i)
    if (const CUresult bad = attribute_of(found, attributes[i], values[i]); bad != CUDA_SUCCESS) return bad;
  return CUDA_SUCCESS;
}

// ---- for programs that find symbols by themselves: tests in Python, and those of rueda ----

FAKE_CUDA_API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  return cuDevicePrimaryCtxRelease(device);
}
FAKE_CUDA_API CUresult cuCtxPushCurrent_v2(CUcontext context) { return cuCtxPushCurrent(context); }
FAKE_CUDA_API CUresult cuCtxPopCurrent_v2(CUcontext* context) { return cuCtxPopCurrent(context); }
FAKE_CUDA_API CUresult cuMemAlloc_v2(CUdeviceptr* address, size_t bytes) {
  return cuMemAlloc(address, bytes);
}
FAKE_CUDA_API CUresult cuMemFree_v2(CUdeviceptr address) { return cuMemFree(address); }

FAKE_CUDA_API CUresult cuPointerGetAttribute(void* value, CUpointer_attribute attribute,
                                             CUdeviceptr address) {
  Machine& machine = Machine::get();
  const std::lock_guard lock(machine.mutex);
  const Allocation* const found = machine.find(address, 1);
  return found == nullptr ? CUDA_ERROR_INVALID_VALUE : attribute_of(found, attribute, value);
}

FAKE_CUDA_API CUresult cuCtxSetCurrent(CUcontext context) {
  if (!current_contexts().empty()) current_contexts().pop_back();
  if (context != nullptr) current_contexts().push_back(context_of(context));
  return CUDA_SUCCESS;
}

FAKE_CUDA_API CUresult cuCtxGetCurrent(CUcontext* context) {
  *context = handle_of(current_context());
  return CUDA_SUCCESS;
}

FAKE_CUDA_API CUresult cuCtxCreate_v2(CUcontext* context, unsigned, CUdevice device) {
  Machine& machine = Machine::get();
  if (const CUresult bad = check_device(machine, device); bad != CUDA_SUCCESS) return bad;
  const std::lock_guard lock(machine.mutex);
  machine.others.push_back(std::make_unique<Context>());
  *machine.others.back() = {.device = device, .is_primary = false};
  *context = handle_of(machine.others.back().get());
  current_contexts().push_back(machine.others.back().get());
  return CUDA_SUCCESS;
}

FAKE_CUDA_API CUresult cuCtxSynchronize() {
  Machine& machine = Machine::get();
  std::unique_lock lock(machine.mutex);
  if (const CUresult unsafe = machine.check_unsafe(); unsafe != CUDA_SUCCESS) return unsafe;
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  machine.drain(lock, current_context());
  return machine.failure_of(current_context());
}

// Memory of a device is memory of the process. Both wait for the work of the device first.
FAKE_CUDA_API CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes) {
  const CUresult result = cuCtxSynchronize();
  if (result == CUDA_SUCCESS) std::memcpy(reinterpret_cast<void*>(to), from, bytes);
  return result;
}

FAKE_CUDA_API CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes) {
  const CUresult result = cuCtxSynchronize();
  if (result == CUDA_SUCCESS) std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
  return result;
}
