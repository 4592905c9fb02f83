#include "machine.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <sstream>
#include <thread>

#include "fake_cuda.h"

namespace fake_cuda {
namespace {

std::string variable(const char* name, const std::string& otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : text;
}

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, at);)
    if (!part.empty()) parts.push_back(part);
  return parts;
}

}  // namespace

Machine& Machine::get() {
  static Machine* const machine = new Machine;  // never destroyed
  return *machine;
}

Machine::Machine() { read_environment(); }

void Machine::read_environment() {
  const int devices = std::stoi(variable("FAKE_CUDA_DEVICES", "2"));
  memory_bytes = std::stoull(variable("FAKE_CUDA_MEMORY", "1073741824"));
  is_unified = variable("FAKE_CUDA_UNIFIED", "0") == "1";
  version = std::stoi(variable("FAKE_CUDA_VERSION", "12040"));
  seed_ = static_cast<uint32_t>(std::stoul(variable("FAKE_CUDA_SEED", "1")));
  longest_delay_us_ = static_cast<uint32_t>(std::stoul(variable("FAKE_CUDA_DELAY_US", "200")));
  for (const std::string& name : split(variable("FAKE_CUDA_MISSING", ""), ',')) missing_.insert(name);
  for (const std::string& plant : split(variable("FAKE_CUDA_PLANT", ""), ',')) {
    const std::vector<std::string> parts = split(plant, ':');
    if (parts.size() == 3)
      plants[parts[0]] = {.left = std::stoi(parts[1]), .result = static_cast<CUresult>(std::stoi(parts[2]))};
  }
  const char* chosen = std::getenv("CUDA_VISIBLE_DEVICES");
  for (int device = 0; chosen == nullptr && device < devices; ++device) visible.push_back(device);
  for (const std::string& one : split(chosen == nullptr ? "" : chosen, ',')) {
    const int device = std::atoi(one.c_str());
    if (device < 0 || device >= devices) break;  // CUDA ignores what follows as well
    visible.push_back(device);
  }
  health.resize(visible.size());
  free_bytes.assign(visible.size(), memory_bytes);
  for (size_t i = 0; i < visible.size(); ++i) {
    primary.push_back(std::make_unique<Context>());
    primary.back()->device = static_cast<int>(i);
  }
}

CUresult Machine::enter(const char* function) {
  const std::lock_guard lock(mutex);
  ++calls[function];
  const auto found = plants.find(function);
  if (found == plants.end() || --found->second.left > 0) return CUDA_SUCCESS;
  const CUresult result = found->second.result;
  plants.erase(found);
  return result;
}

Allocation* Machine::find(CUdeviceptr address, size_t bytes) {
  const auto after = allocations.upper_bound(static_cast<uintptr_t>(address));
  if (after != allocations.begin()) {
    const auto found = std::prev(after);
    if (address + bytes <= found->first + found->second.bytes) return &found->second;
  }
  if (!is_unified || address == 0) return nullptr;
  everything_ = {.bytes = SIZE_MAX, .context = primary.front().get(), .is_device = true};
  return &everything_;
}

std::shared_ptr<Stream> Machine::find(CUstream stream) {
  const auto number = reinterpret_cast<uintptr_t>(stream);
  if (number <= 2) {  // the default stream, legacy or of the thread
    Context* const context = current_context();
    if (context == nullptr) return nullptr;
    auto& handle = defaults_[context];
    if (handle == nullptr) handle = reinterpret_cast<CUstream>(start_stream(context).get());
    stream = handle;
  }
  const auto found = streams.find(stream);
  return found == streams.end() ? nullptr : found->second;
}

std::shared_ptr<Event> Machine::find(CUevent event) {
  const auto found = events.find(event);
  return found == events.end() ? nullptr : found->second;
}

std::shared_ptr<Stream> Machine::start_stream(Context* context) {
  auto stream = std::make_shared<Stream>();
  stream->context = context;
  stream->random.seed(seed_++);
  streams[reinterpret_cast<CUstream>(stream.get())] = stream;
  std::thread([this, stream] { run(stream); }).detach();
  return stream;
}

void Machine::wait_for_room(std::unique_lock<std::mutex>& lock, CUstream stream) {
  constexpr size_t kMost = 1024;
  const std::shared_ptr<Stream> in = find(stream);
  if (in != nullptr) changed.wait(lock, [&] { return in->work.size() < kMost; });
}

void Machine::enqueue(const std::shared_ptr<Stream>& stream, std::function<void()> work) {
  stream->work.push_back(std::move(work));
  changed.notify_all();
}

void Machine::run(const std::shared_ptr<Stream>& stream) {
  std::unique_lock lock(mutex);
  for (;;) {
    changed.wait(lock, [&] { return !stream->work.empty() || stream->is_closing; });
    if (stream->work.empty()) {
      closing.erase(stream);
      changed.notify_all();
      return;
    }
    const std::function<void()> work = std::move(stream->work.front());
    stream->work.pop_front();
    stream->is_working = true;
    const uint32_t delay_us =
        longest_delay_us_ == 0 ? 0 : static_cast<uint32_t>(stream->random()) % (longest_delay_us_ + 1);
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::microseconds(delay_us));
    lock.lock();
    Health& mine = health[index_of(stream->context)];
    if (mine.next_failure != 0) {
      mine.failure = static_cast<CUresult>(mine.next_failure);
      mine.next_failure = 0;
    }
    const bool is_well = mine.failure == CUDA_SUCCESS;
    lock.unlock();
    if (is_well) work();
    lock.lock();
    stream->is_working = false;
    changed.notify_all();
  }
}

CUresult Machine::check_unsafe() {
  if (capture_mode() == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  const bool sees_others = capture_mode() == CU_STREAM_CAPTURE_MODE_GLOBAL;
  CUresult result = CUDA_SUCCESS;
  for (const auto& [handle, stream] : streams) {
    if (!stream->capture) continue;
    Capture& capture = *stream->capture;
    const bool is_mine = capture.thread == std::this_thread::get_id();
    const bool conflicts = is_mine ? capture.mode != CU_STREAM_CAPTURE_MODE_RELAXED
                                   : sees_others && capture.mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (!conflicts) continue;
    capture.is_invalid = true;
    result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return result;
}

void Machine::drain(std::unique_lock<std::mutex>& lock, const Context* context) {
  const auto is_done = [&](const Stream& stream) {
    return stream.context->device != context->device || (stream.work.empty() && !stream.is_working);
  };
  changed.wait(lock, [&] {
    return std::ranges::all_of(streams, [&](const auto& one) { return is_done(*one.second); }) &&
           std::ranges::all_of(closing, [&](const auto& one) { return is_done(*one); });
  });
}

std::vector<Context*>& current_contexts() {
  thread_local std::vector<Context*> contexts;
  return contexts;
}

CUstreamCaptureMode& capture_mode() {
  thread_local CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  return mode;
}

Context* current_context() { return current_contexts().empty() ? nullptr : current_contexts().back(); }

}  // namespace fake_cuda

using fake_cuda::Machine;

#define FAKE_CUDA_EXPORT extern "C" __attribute__((visibility("default")))

FAKE_CUDA_EXPORT void fake_cuda_plant(const char* function, int n, int result) {
  const std::lock_guard lock(Machine::get().mutex);
  Machine::get().plants[function] = {.left = n, .result = static_cast<fake_cuda::CUresult>(result)};
}

FAKE_CUDA_EXPORT void fake_cuda_fail_device(int device, int result) {
  const std::lock_guard lock(Machine::get().mutex);
  Machine::get().health.at(static_cast<size_t>(device)).next_failure = result;
}

FAKE_CUDA_EXPORT void fake_cuda_heal(void) {
  const std::lock_guard lock(Machine::get().mutex);
  Machine::get().plants.clear();
  Machine::get().are_instances = false;
  std::ranges::fill(Machine::get().free_bytes, Machine::get().memory_bytes);
  for (fake_cuda::Health& one : Machine::get().health) one = {};
}

FAKE_CUDA_EXPORT void fake_cuda_make_instances(bool are_instances) {
  const std::lock_guard lock(Machine::get().mutex);
  Machine::get().are_instances = are_instances;
}

FAKE_CUDA_EXPORT void fake_cuda_set_free_memory(int device, size_t bytes) {
  const std::lock_guard lock(Machine::get().mutex);
  Machine::get().free_bytes.at(static_cast<size_t>(device)) = bytes;
}

FAKE_CUDA_EXPORT size_t fake_cuda_calls(const char* function) {
  const std::lock_guard lock(Machine::get().mutex);
  return Machine::get().calls[function];
}

FAKE_CUDA_EXPORT size_t fake_cuda_device_bytes(void) {
  const std::lock_guard lock(Machine::get().mutex);
  return Machine::get().device_bytes;
}

FAKE_CUDA_EXPORT size_t fake_cuda_pinned_bytes(void) {
  const std::lock_guard lock(Machine::get().mutex);
  return Machine::get().pinned_bytes;
}
