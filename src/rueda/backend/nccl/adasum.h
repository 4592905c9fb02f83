// Adasum over NCCL, in the tree over ranks that schedule/adasum_tree.h describes: at each level two blocks of
// ranks exchange their vectors, and kernels combine them, each tensor by itself. Vectors are float64 or
// float32, also of 16-bit floats. Engine thread only, with the device's context current; everything is
// enqueued on the stream, nothing waits.
//
// Steps: ceil(log2 n) groups of NCCL. Bytes sent per rank: S log2 n for powers of two, with S bytes of
// vectors.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "rueda/backend/backend.h"
#include "rueda/backend/device_scratch.h"
#include "rueda/backend/gpu.h"
#include "rueda/backend/nccl/lowering.h"
#include "rueda/schedule/adasum_tree.h"

namespace rueda::nccl {

class Adasum {
 public:
  // A part fills the memory for packed tensors to a quarter: the vectors of 16-bit floats need four times as
  // much.
  static constexpr size_t kPackedShare = 4;

  explicit Adasum(backend::Gpu& gpu) : gpu_(gpu) {}

  // How much memory the vectors of a part need. The same on every member. Pure.
  static size_t bytes_for(const backend::Call& part);
  // Allocates so much if it can. Returns how much there is.
  size_t reserve(size_t bytes);
  // Lays out the vector of a part whose tensors have been loaded (DevicePacking).
  Status begin(const backend::Call& part);
  // What NCCL sends and receives at the next level; nothing if no level is left.
  [[nodiscard]] std::vector<Step> exchange() const;
  // The exchange has been enqueued. Combines its vectors.
  Status combine();
  [[nodiscard]] bool is_combined() const { return level_ == levels_.size(); }
  // Scales the result and puts it where the part's tensors are, for DevicePacking to store.
  Status finish(const Scale& scale);

  // Everything that was enqueued until now has ended when `event` happens.
  void enqueued_until(const std::shared_ptr<backend::CudaEvent>& event) { memory_.enqueued_until(event); }

 private:
  [[nodiscard]] size_t vector_bytes() const { return count_ * size_of(type_); }

  backend::Gpu& gpu_;
  backend::DeviceScratch memory_;

  // of the part
  DType dtype_ = DType::kFloat32, type_ = DType::kFloat32;  // of its tensors, of its vectors
  size_t count_ = 0;
  std::byte* result_ = nullptr;  // its run
  std::byte* mine_ = nullptr;    // the vector of my block
  std::byte* theirs_ = nullptr;
  std::byte* scratch_ = nullptr;
  std::vector<cuda::TensorRun> tensors_;  // in the vectors
  std::vector<schedule::AdasumLevel> levels_;
  size_t level_ = 0;
};

}  // namespace rueda::nccl
