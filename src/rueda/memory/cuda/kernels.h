// The kernels of rueda on one device. Their source (kernels.cu) is compiled to PTX when rueda is built and is
// part of the library as text; the driver compiles it for whatever device there is. All of them are launched
// on the stream that is given and return at once. Engine thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "rueda/base/status.h"
#include "rueda/base/types.h"
#include "rueda/memory/cuda/buffers.h"
#include "rueda/memory/cuda/streams.h"

namespace rueda::cuda {

// A run of bytes of one tensor, and its place in the buffer into which tensors are packed.
struct TensorRun {
  std::byte* tensor = nullptr;  // first byte, in the memory of the device
  size_t offset = 0;            // in the buffer
  size_t bytes = 0;

  bool operator==(const TensorRun&) const = default;
};

class Kernels {
 public:
  static Result<std::unique_ptr<Kernels>> load(std::shared_ptr<const Device> device);
  ~Kernels();
  Kernels(const Kernels&) = delete;
  Kernels& operator=(const Kernels&) = delete;

  // Copies all runs into the buffer, or out of it, with one launch. buffer: memory of the device, or pinned.
  // The table of runs goes to the device once and is found there again when the same runs return. It is
  // replaced only after the stream has used it.
  Status pack(Stream& stream, std::span<const TensorRun> runs, std::byte* buffer);
  Status unpack(Stream& stream, std::span<const TensorRun> runs, const std::byte* buffer);
  // The same for runs of floats, which are scaled on the way, with the bits of scale().
  Status pack_scaled(Stream& stream, DType dtype, std::span<const TensorRun> runs, std::byte* buffer,
                     Scale scale);
  Status unpack_scaled(Stream& stream, DType dtype, std::span<const TensorRun> runs, const std::byte* buffer,
                       Scale scale);

  // The same bits as kernels::scale(), kernels::cast() and a sum of two in rank order give on the host. `to`
  // may be the memory of an input.
  Status scale(Stream& stream, DType dtype, const void* from, void* to, size_t count, Scale scale);
  Status add(Stream& stream, DType dtype, const void* one, const void* other, void* to, size_t count);
  // The same bits as kernels::reduce_sources() gives for kSum, of inputs that were prescaled on the host. A
  // null source is zeros. `to` may be one of the sources. At most kMostSummed of them.
  static constexpr size_t kMostSummed = 16;
  Status sum(Stream& stream, DType dtype, std::span<const void* const> sources, void* to, size_t count,
             double prescale, Scale scale);
  // Adasum of two vectors of float32 or float64, each run by itself: a run is a tensor's place in both
  // vectors and in the result (its `tensor` is not used). `to` may be one of the vectors. Products are added
  // in another order than on the host, which is the same on every device. scratch: adasum_bytes(runs) of the
  // device.
  Status adasum(Stream& stream, DType dtype, std::span<const TensorRun> runs, const std::byte* left,
                const std::byte* right, std::byte* to, std::byte* scratch);
  static size_t adasum_bytes(std::span<const TensorRun> runs);
  // Between float32 and a 16-bit float, in either direction.
  Status cast(Stream& stream, DType from_type, const void* from, DType to_type, void* to, size_t count);

 private:
  struct State;
  explicit Kernels(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace rueda::cuda
