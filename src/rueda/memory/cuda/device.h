// One device of this process, by the number that frameworks give it (CUDA_VISIBLE_DEVICES applies). Its
// primary context is retained while the object lives: PyTorch, JAX and CuPy use the same one, so memory,
// streams and events of all of them fit together. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "rueda/base/status.h"
#include "rueda/memory/cuda/driver.h"

namespace rueda::cuda {

struct MemoryRange {
  uintptr_t begin = 0, end = 0;
  [[nodiscard]] bool contains(const void* address) const {
    const auto at = reinterpret_cast<uintptr_t>(address);
    return begin <= at && at < end;
  }
};

class Device {
 public:
  // Initialises CUDA in this process if nobody has.
  static Result<std::shared_ptr<const Device>> open(std::shared_ptr<const Driver> driver, int32_t ordinal);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  [[nodiscard]] const Driver& driver() const { return *driver_; }
  [[nodiscard]] int32_t ordinal() const { return ordinal_; }
  [[nodiscard]] CUcontext context() const { return context_; }
  [[nodiscard]] const std::string& name() const { return name_; }     // "NVIDIA H100 80GB HBM3"
  [[nodiscard]] const CUuuid& uuid() const { return uuid_; }          // of the GPU, or of its MIG instance
  [[nodiscard]] const CUuuid& gpu_uuid() const { return gpu_uuid_; }  // of the GPU, whole or not

  // How much of its memory nobody has, at this moment; 0 if the driver does not say.
  [[nodiscard]] size_t free_bytes() const;
  // Fails if the memory is not this device's, or belongs to another context. Memory of no bytes may be null.
  // allocation: becomes the one that the address lies in, empty where CUDA does not say; a framework has many
  // tensors in one.
  [[nodiscard]] Status check_memory(const void* memory, MemoryRange* allocation = nullptr) const;
  // Fails if the stream is being captured into a CUDA graph, or is no stream of CUDA. Null: the default
  // stream.
  [[nodiscard]] Status check_stream(CUstream stream) const;
  // The same, and fails if the stream is another device's or context's. What the caller gave is at fault.
  [[nodiscard]] Status check_own_stream(CUstream stream) const;
  // Whether the stream is known to be this device's and not to be captured, without making the device
  // current: a default stream is that of the context that is current on this thread. The quicker question.
  [[nodiscard]] bool is_open_stream(CUstream stream) const;

 private:
  Device(std::shared_ptr<const Driver> driver, int32_t ordinal)
      : driver_(std::move(driver)), ordinal_(ordinal) {}
  Status retain();

  std::shared_ptr<const Driver> driver_;
  int32_t ordinal_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  std::string name_;
  CUuuid uuid_{}, gpu_uuid_{};
};

// Makes the device's context current on this thread while it lives, and then what was current before.
//
// Meanwhile the thread's capture mode is relaxed. Otherwise, while any thread of the program captures a CUDA
// graph in the mode that is torch's default, CUDA would refuse what all threads ask of events and memory,
// and the capture would be lost.
//
// Inside of another one of the same device it asks CUDA for nothing. They end in the opposite order.
class ScopedContext {
 public:
  explicit ScopedContext(const Device& device);
  ~ScopedContext();
  ScopedContext(const ScopedContext&) = delete;
  ScopedContext& operator=(const ScopedContext&) = delete;
  // Nothing that needs the context may be called if this has failed.
  [[nodiscard]] const Status& status() const { return status_; }

 private:
  const Driver& driver_;
  CUcontext context_;
  bool has_pushed_ = false;
  const ScopedContext* outer_ = nullptr;  // around this one, if it has pushed
  Status status_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;  // that of the thread, to be given back
};

// The devices that this process has used so far, opened when they are first asked for. The tensors say which
// devices those are: a process may see many and use one.
class Devices {
 public:
  explicit Devices(std::shared_ptr<const Driver> driver) : driver_(std::move(driver)) {}
  Result<std::shared_ptr<const Device>> get(int32_t ordinal);
  [[nodiscard]] const Driver& driver() const { return *driver_; }

 private:
  std::shared_ptr<const Driver> driver_;
  std::mutex mutex_;
  std::map<int32_t, std::shared_ptr<const Device>> open_;
};

// The device whose memory this is, or -1: memory of the host. Some context must be current.
int32_t device_of(const Driver& driver, const void* memory);

// The device of a stream of a framework, or -1: the handle is no stream.
int32_t device_of_stream(const Driver& driver, CUstream stream);

// The device of a rank that has none of the tensors: it has joined. The launcher's local rank chooses it.
Result<int32_t> usual_ordinal(const Driver& driver, int32_t local_rank);

}  // namespace rueda::cuda
