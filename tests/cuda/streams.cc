// The functions of the tests' libcuda that work in the order of a stream, and those that wait for it.
#include <algorithm>
#include <cstring>
#include <set>
#include <string_view>
#include <utility>

#include "api.h"
#include "host_kernels.h"

using namespace fake_cuda;

namespace {

CUevent handle_of(const Event* event) { return reinterpret_cast<CUevent>(const_cast<Event*>(event)); }

struct Module {
  std::set<std::string, std::less<>> kernels;  // by name
};

// The kernels of a text in PTX. It is searched once: engines ask for a hundred, and sanitizers slow such
// searches down.
std::set<std::string, std::less<>> kernels_of(std::string_view text) {
  constexpr std::string_view kEntry = ".entry ";
  std::set<std::string, std::less<>> found;
  for (size_t at = text.find(kEntry); at != std::string_view::npos; at = text.find(kEntry, at)) {
    at += kEntry.size();
    found.emplace(text.substr(at, text.find('(', at) - at));
  }
  return found;
}

// The stream's device has not failed, and the stream takes work.
CUresult check(Machine& machine, const std::shared_ptr<Stream>& stream) {
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->capture) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  return machine.failure_of(stream->context);
}

}  // namespace

CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return CUDA_SUCCESS;
}

CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned, int) {
  FAKE_CUDA_ENTER(cuStreamCreateWithPriority);
  const std::lock_guard lock(machine.mutex);
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *stream = reinterpret_cast<CUstream>(machine.start_stream(current_context()).get());
  return CUDA_SUCCESS;
}

CUresult cuStreamDestroy(CUstream stream) {
  Machine& machine = Machine::get();
  const std::lock_guard lock(machine.mutex);
  const auto found = machine.streams.find(stream);
  if (found == machine.streams.end()) return CUDA_ERROR_INVALID_HANDLE;
  found->second->is_closing = true;  // its thread ends after what is enqueued
  machine.closing.insert(found->second);
  machine.streams.erase(found);
  machine.changed.notify_all();
  return CUDA_SUCCESS;
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  FAKE_CUDA_ENTER(cuMemcpyAsync);
  std::unique_lock lock(machine.mutex);
  machine.wait_for_room(lock, stream);
  const std::shared_ptr<Stream> in = machine.find(stream);
  if (const CUresult bad = check(machine, in); bad != CUDA_SUCCESS) return bad;
  // Of memory that is not pinned, CUDA would copy in other ways; nobody here should want that.
  if (machine.find(to, bytes) == nullptr || machine.find(from, bytes) == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  machine.enqueue(in, [to, from, bytes] {
    std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
  });
  return CUDA_SUCCESS;
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned) {
  FAKE_CUDA_ENTER(cuStreamWaitEvent);
  std::unique_lock lock(machine.mutex);
  machine.wait_for_room(lock, stream);
  const std::shared_ptr<Stream> in = machine.find(stream);
  if (const CUresult bad = check(machine, in); bad != CUDA_SUCCESS) return bad;
  const std::shared_ptr<Event> awaited = machine.find(event);
  if (awaited == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (awaited->is_captured) return CUDA_ERROR_CAPTURED_EVENT;
  machine.enqueue(in, [&machine, in, awaited, recorded = awaited->recorded] {
    std::unique_lock inner(machine.mutex);
    machine.changed.wait(inner, [&] {
      return awaited->happened >= recorded || machine.failure_of(in->context) != CUDA_SUCCESS;
    });
  });
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx(CUstream stream, CUcontext* context) {
  FAKE_CUDA_ENTER(cuStreamGetCtx);
  const std::lock_guard lock(machine.mutex);
  const std::shared_ptr<Stream> found = machine.find(stream);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *context = fake_cuda::handle_of(found->context);
  return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  FAKE_CUDA_ENTER(cuStreamIsCapturing);
  const std::lock_guard lock(machine.mutex);
  const std::shared_ptr<Stream> found = machine.find(stream);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *status = found->capture ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}

CUresult cuStreamQuery(CUstream stream) {
  FAKE_CUDA_ENTER(cuStreamQuery);
  const std::lock_guard lock(machine.mutex);
  if (const CUresult unsafe = machine.check_unsafe(); unsafe != CUDA_SUCCESS) return unsafe;
  const std::shared_ptr<Stream> found = machine.find(stream);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult failed = machine.failure_of(found->context); failed != CUDA_SUCCESS) return failed;
  return found->work.empty() && !found->is_working ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void* argument) {
  FAKE_CUDA_ENTER(cuLaunchHostFunc);
  std::unique_lock lock(machine.mutex);
  machine.wait_for_room(lock, stream);
  const std::shared_ptr<Stream> in = machine.find(stream);
  if (const CUresult bad = check(machine, in); bad != CUDA_SUCCESS) return bad;
  machine.enqueue(in, [function, argument] { function(argument); });
  return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent* event, unsigned) {
  FAKE_CUDA_ENTER(cuEventCreate);
  const std::lock_guard lock(machine.mutex);
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  auto made = std::make_shared<Event>();
  made->context = current_context();
  *event = handle_of(made.get());
  machine.events[*event] = std::move(made);
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent event) {
  Machine& machine = Machine::get();
  const std::lock_guard lock(machine.mutex);
  return machine.events.erase(event) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
  FAKE_CUDA_ENTER(cuEventRecord);
  std::unique_lock lock(machine.mutex);
  machine.wait_for_room(lock, stream);
  const std::shared_ptr<Stream> in = machine.find(stream);
  const std::shared_ptr<Event> mine = machine.find(event);
  if (in == nullptr || mine == nullptr || in->context != mine->context) return CUDA_ERROR_INVALID_HANDLE;
  mine->is_captured = in->capture.has_value();
  if (in->capture) return CUDA_SUCCESS;
  if (const CUresult failed = machine.failure_of(in->context); failed != CUDA_SUCCESS) return failed;
  machine.enqueue(in, [&machine, mine, number = ++mine->recorded] {
    const std::lock_guard inner(machine.mutex);
    mine->happened = std::max(mine->happened, number);
    machine.changed.notify_all();
  });
  return CUDA_SUCCESS;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  std::swap(*mode, capture_mode());
  return CUDA_SUCCESS;
}

// A failed device answers for every event of the process, as a context that is broken does.
CUresult cuEventQuery(CUevent event) {
  FAKE_CUDA_ENTER(cuEventQuery);
  const std::lock_guard lock(machine.mutex);
  if (const CUresult unsafe = machine.check_unsafe(); unsafe != CUDA_SUCCESS) return unsafe;
  const std::shared_ptr<Event> mine = machine.find(event);
  if (mine == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (mine->is_captured) return CUDA_ERROR_CAPTURED_EVENT;
  if (current_context() != nullptr && machine.failure_of(current_context()) != CUDA_SUCCESS)
    return machine.failure_of(current_context());
  return mine->happened >= mine->recorded ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  FAKE_CUDA_ENTER(cuModuleLoadData);
  const std::lock_guard lock(machine.mutex);
  if (const CUresult unsafe = machine.check_unsafe(); unsafe != CUDA_SUCCESS) return unsafe;
  const std::string_view text = static_cast<const char*>(image);
  if (text.find(".version") == std::string_view::npos) return CUDA_ERROR_INVALID_PTX;
  auto loaded = std::make_unique<Module>(Module{.kernels = kernels_of(text)});
  *module = reinterpret_cast<CUmodule>(loaded.release());
  return CUDA_SUCCESS;
}

// Waits for the work of the device, as freeing memory does.
CUresult cuModuleUnload(CUmodule module) {
  const std::unique_ptr<Module> owned(reinterpret_cast<Module*>(module));
  Machine& machine = Machine::get();
  std::unique_lock lock(machine.mutex);
  if (current_context() != nullptr) machine.drain(lock, current_context());
  return CUDA_SUCCESS;
}

// A kernel must be in the text that was loaded, and be one that the host has.
CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  FAKE_CUDA_ENTER(cuModuleGetFunction);
  const HostKernel* kernel = find_kernel(name);
  if (kernel == nullptr || !reinterpret_cast<Module*>(module)->kernels.contains(name))
    return CUDA_ERROR_NOT_FOUND;
  *function = reinterpret_cast<CUfunction>(const_cast<HostKernel*>(kernel));
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned, unsigned, unsigned block_x, unsigned,
                        unsigned, unsigned, CUstream stream, void** arguments, void**) {
  FAKE_CUDA_ENTER(cuLaunchKernel);
  std::unique_lock lock(machine.mutex);
  machine.wait_for_room(lock, stream);
  const std::shared_ptr<Stream> in = machine.find(stream);
  if (const CUresult bad = check(machine, in); bad != CUDA_SUCCESS) return bad;
  const auto& kernel = *reinterpret_cast<const HostKernel*>(function);
  machine.enqueue(in, kernel({.blocks = grid_x, .threads = block_x}, arguments));
  return CUDA_SUCCESS;
}

// ---- for tests ----

FAKE_CUDA_API CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
  return cuStreamCreateWithPriority(stream, flags, 0);
}
FAKE_CUDA_API CUresult cuStreamDestroy_v2(CUstream stream) { return cuStreamDestroy(stream); }
FAKE_CUDA_API CUresult cuEventDestroy_v2(CUevent event) { return cuEventDestroy(event); }

FAKE_CUDA_API CUresult cuStreamSynchronize(CUstream stream) {
  Machine& machine = Machine::get();
  std::unique_lock lock(machine.mutex);
  const std::shared_ptr<Stream> in = machine.find(stream);
  if (in == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  machine.changed.wait(lock, [&] { return in->work.empty() && !in->is_working; });
  return machine.failure_of(in->context);
}

FAKE_CUDA_API CUresult cuEventSynchronize(CUevent event) {
  Machine& machine = Machine::get();
  std::unique_lock lock(machine.mutex);
  const std::shared_ptr<Event> mine = machine.find(event);
  if (mine == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  machine.changed.wait(lock, [&] { return mine->happened >= mine->recorded; });
  return CUDA_SUCCESS;
}

FAKE_CUDA_API CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
  Machine& machine = Machine::get();
  const std::lock_guard lock(machine.mutex);
  const std::shared_ptr<Stream> in = machine.find(stream);
  if (in == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  in->capture = Capture{.thread = std::this_thread::get_id(), .mode = mode};
  return CUDA_SUCCESS;
}

FAKE_CUDA_API CUresult cuStreamEndCapture(CUstream stream, void** graph) {
  Machine& machine = Machine::get();
  const std::lock_guard lock(machine.mutex);
  const std::shared_ptr<Stream> in = machine.find(stream);
  if (in == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *graph = nullptr;
  const bool is_valid = in->capture && !in->capture->is_invalid;
  in->capture.reset();
  return is_valid ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
}
