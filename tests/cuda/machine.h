// The machine that the tests' libcuda pretends to have: devices, contexts, memory, streams and events. All
// functions of the library work on the one Machine of the process, which is never destroyed, because streams
// are threads and may outlive every test.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "rueda/memory/cuda/driver_api.h"

namespace fake_cuda {

using namespace rueda::cuda;

struct Context {
  int device = 0;
  bool is_primary = true;
};

struct Allocation {
  size_t bytes = 0;
  Context* context = nullptr;
  bool is_device = true;   // otherwise pinned memory of the host
  int descriptor = -1;     // of the memory that other processes can map; -1: none, and it came from the heap
  bool is_mapped = false;  // memory of another process, or of this one, opened by its handle
};

struct Event {
  Context* context = nullptr;
  uint64_t recorded = 0, happened = 0;  // numbers of its recordings
  bool is_captured = false;
};

// What a stream does goes into a graph.
struct Capture {
  std::thread::id thread;  // that has begun it
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  bool is_invalid = false;  // the graph will not be made
};

struct Stream {
  Context* context = nullptr;
  std::deque<std::function<void()>> work;
  bool is_working = false, is_closing = false;
  std::optional<Capture> capture;  // that is going on
  std::minstd_rand random;
};

// What one device has suffered.
struct Health {
  int next_failure = 0;  // strikes with the next work
  CUresult failure = CUDA_SUCCESS;
};

struct Plant {
  int left = 0;
  CUresult result = CUDA_SUCCESS;
};

class Machine {
 public:
  static Machine& get();

  // Counts the call; the planted answer if there is one.
  CUresult enter(const char* function);
  [[nodiscard]] bool is_missing(const std::string& function) const { return missing_.contains(function); }

  std::mutex mutex;                 // of everything below
  std::condition_variable changed;  // a stream has done something, or an event has happened

  int version = 12040;
  std::vector<int> visible;  // numbers of the devices of the machine
  size_t memory_bytes = size_t{1} << 30;
  bool is_unified = false;
  bool are_instances = false;                     // of one GPU (MIG)
  std::vector<std::unique_ptr<Context>> primary;  // [visible]
  std::vector<std::unique_ptr<Context>> others;
  std::vector<Health> health;      // [visible]
  std::vector<size_t> free_bytes;  // [visible]
  size_t device_bytes = 0, pinned_bytes = 0;
  std::map<uintptr_t, Allocation> allocations;
  std::map<CUstream, std::shared_ptr<Stream>> streams;
  std::set<std::shared_ptr<Stream>> closing;  // destroyed, with work left
  std::map<CUevent, std::shared_ptr<Event>> events;
  std::map<std::string, Plant> plants;
  std::map<std::string, size_t> calls;
  std::atomic<bool> is_initialised = false;

  // ---- with the mutex held ----

  // The allocation that has all of the range; null if none has. Of a unified machine, all other memory of the
  // process is one allocation on its first device.
  Allocation* find(CUdeviceptr address, size_t bytes);
  std::shared_ptr<Stream> find(
      CUstream stream);  // null if unknown; the default stream of the current context
  std::shared_ptr<Event> find(CUevent event);
  CUresult failure_of(const Context* context) { return health[index_of(context)].failure; }
  size_t index_of(const Context* context) const { return static_cast<size_t>(context->device); }
  std::shared_ptr<Stream> start_stream(Context* context);
  // The stream does the work later, unless its device has failed by then. Its queue must have room.
  void enqueue(const std::shared_ptr<Stream>& stream, std::function<void()> work);
  // Before what CUDA calls potentially unsafe: to allocate or free, to ask an event. While a stream is being
  // captured, a thread may do this only as its capture mode says; otherwise the captures are invalid.
  CUresult check_unsafe();
  // Waits until the stream has room in its queue, as CUDA does whenever it is given something.
  void wait_for_room(std::unique_lock<std::mutex>& lock, CUstream stream);
  // Waits until no stream of the context's device has any work left.
  void drain(std::unique_lock<std::mutex>& lock, const Context* context);

 private:
  Machine();
  void read_environment();
  void run(const std::shared_ptr<Stream>& stream);

  std::set<std::string> missing_;
  uint32_t seed_ = 1;
  uint32_t longest_delay_us_ = 200;
  std::map<Context*, CUstream> defaults_;
  Allocation everything_;
};

// The contexts that are current on this thread; the last one counts.
std::vector<Context*>& current_contexts();
Context* current_context();  // null if there is none
// How captures concern this thread.
CUstreamCaptureMode& capture_mode();

}  // namespace fake_cuda
