// The tensors of one call as runs of elements on the device of this rank, as vendor libraries take them. The
// tensors of an allreduce are packed; a tensor of another device of this rank is copied; a rank that has
// joined contributes identity elements. Everything is enqueued on the stream, nothing waits. Engine thread
// only, with the device's context current.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "rueda/backend/backend.h"
#include "rueda/backend/cuda_event.h"
#include "rueda/backend/device_scratch.h"
#include "rueda/memory/cuda/buffers.h"
#include "rueda/memory/cuda/kernels.h"
#include "rueda/memory/cuda/streams.h"

namespace rueda::backend {

// One run of elements on my device: a tensor, or several that are packed.
struct DeviceRun {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  int64_t count = 0;                     // as in Segment
  std::span<const int64_t> counts = {};  // as in Segment
};

// How many of the first tensors an allreduce can pack in so many bytes; at least one, because a tensor alone
// need not be packed. The same on every member. Pure.
size_t packed_at_once(DType dtype, std::span<const Segment> tensors, size_t pack_bytes);

// How many bytes these tensors of an allreduce take on every member, in memory for packed tensors or where
// one lies alone. Pure.
size_t bytes_of_run(DType dtype, std::span<const Segment> tensors);

// The events for which a stream has to wait before it may use these tensors. Tensors that were submitted
// together share one, and lie side by side.
std::vector<void*> events_of(std::span<const Segment> tensors);

// Whether a tensor may be used where it lies.
enum class Copies : uint8_t {
  kNeeded,
  kAll  // never: another library may still write there when a call has been given up
};

class DevicePacking {
 public:
  DevicePacking(cuda::Stream& stream, cuda::Kernels& kernels, Copies copies = Copies::kNeeded)
      : stream_(stream), kernels_(kernels), copies_(copies) {}

  // Allocates what the packing of so many bytes needs, or less if that is more than half of what the device
  // has left. Returns for how many bytes there is memory now; perhaps 0.
  size_t prepare(size_t bytes);
  [[nodiscard]] std::byte* memory() const { return buffer_.data(); }  // what was prepared
  // Frees that memory if no call has used it.
  void give_up_unused() { buffer_.give_up_unused(); }
  // Makes the stream wait for every tensor, and lays the inputs out, scaled by `before`.
  Status load(const Call& call, const Scale& before);
  // [tensors], or one for all if they are packed.
  [[nodiscard]] std::span<const DeviceRun> runs() const { return runs_; }
  // Of an allreduce: where a tensor begins in the one run.
  [[nodiscard]] size_t offset_of(size_t tensor) const { return is_packed_ ? offsets_[tensor] : 0; }
  // Scales the results by `after` and puts them where the tensors are.
  Status store(const Call& call, const Scale& after);
  // Everything that was enqueued until now has ended when `event` happens.
  void enqueued_until(const std::shared_ptr<CudaEvent>& event) { buffer_.enqueued_until(event); }

 private:
  struct TensorProgress {  // of one tensor
    const std::byte* input = nullptr;
    std::byte* output = nullptr;
    size_t given = 0, taken = 0;  // elements
    bool is_fetched = false;      // the input is copied to the buffer
    bool is_delivered = false;    // the result is copied from the buffer
  };
  Status load_packed(const Call& call, const Scale& before);
  Status load_apart(const Call& call, const Scale& before);
  Status fetch(const Call& call, const Segment& segment, std::byte* to, size_t count);
  Status scale_packed(const Call& call, const Scale& before);
  [[nodiscard]] bool scales_on_the_way(const Call& call, const Scale& by) const;
  Status fill_identity(const schedule::Spec& spec, std::byte* to, size_t count);
  Status scale(DType dtype, const void* from, void* to, size_t count, const Scale& by);
  Status reserve(size_t bytes) { return buffer_.reserve(stream_.device(), bytes); }
  // Whether its bytes are copied one by one, and not used where they are.
  [[nodiscard]] bool is_foreign(const Segment& segment) const {
    return copies_ == Copies::kAll || segment.memory.device != stream_.device()->ordinal();
  }

  cuda::Stream& stream_;
  cuda::Kernels& kernels_;
  Copies copies_;
  DeviceScratch buffer_;
  std::map<std::pair<ReduceOp, DType>, cuda::PinnedBuffer> identities_;  // filled once, then only read

  // of the call
  bool is_packed_ = false;
  size_t packed_count_ = 0;
  std::vector<TensorProgress> places_;  // [tensors]
  std::vector<cuda::TensorRun> table_;  // packed: tensors of this device, and where they are in the buffer
  std::vector<size_t> offsets_;         // packed: [tensors] first byte in the buffer
  std::vector<DeviceRun> runs_;
};

}  // namespace rueda::backend
