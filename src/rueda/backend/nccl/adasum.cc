#include "rueda/backend/nccl/adasum.h"

#include "rueda/base/check.h"

namespace rueda::nccl {
namespace {

constexpr size_t kAlignment = 256;

size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

DType type_of_vectors(DType dtype) { return is_16bit_float(dtype) ? DType::kFloat32 : dtype; }

}  // namespace

size_t Adasum::bytes_for(const backend::Call& part) {
  const DType dtype = part.spec.dtype, type = type_of_vectors(dtype);
  std::vector<cuda::TensorRun> tensors;
  for (const backend::Segment& one : part.segments)
    tensors.push_back(
        {.tensor = nullptr, .offset = 0, .bytes = static_cast<size_t>(one.count) * size_of(type)});
  const size_t vector = aligned(backend::bytes_of_run(dtype, part.segments) / size_of(dtype) * size_of(type));
  return (type != dtype ? 2 : 1) * vector + cuda::Kernels::adasum_bytes(tensors);
}

size_t Adasum::reserve(size_t bytes) {
  (void)memory_.reserve(gpu_.device(), bytes);
  return memory_.bytes();
}

Status Adasum::begin(const backend::Call& part) {
  const backend::DevicePacking& packing = gpu_.packing();
  const DeviceRun& run = packing.runs().front();
  dtype_ = part.spec.dtype;
  type_ = type_of_vectors(dtype_);
  count_ = static_cast<size_t>(run.count);
  level_ = 0;
  levels_ = count_ == 0 ? std::vector<schedule::AdasumLevel>()
                        : schedule::adasum_levels(part.group->size(), part.group->me);
  tensors_.clear();
  for (size_t i = 0; i < part.segments.size(); ++i)
    tensors_.push_back({.tensor = nullptr,
                        .offset = packing.offset_of(i) / size_of(dtype_) * size_of(type_),
                        .bytes = static_cast<size_t>(part.segments[i].count) * size_of(type_)});

  const bool is_cast = type_ != dtype_;
  const size_t vector = aligned(vector_bytes());
  if (const Status reserved = memory_.reserve(gpu_.device(), bytes_for(part)); !reserved.is_ok())
    return reserved;
  result_ = run.output;
  mine_ = is_cast ? memory_.data() : result_;
  theirs_ = memory_.data() + (is_cast ? vector : 0);
  scratch_ = theirs_ + vector;
  if (count_ == 0) return Status::ok();
  if (is_cast) return gpu_.kernels().cast(gpu_.stream(), dtype_, run.input, type_, mine_, count_);
  return run.input == mine_ ? Status::ok() : gpu_.stream().copy(mine_, run.input, vector_bytes());
}

std::vector<Step> Adasum::exchange() const {
  std::vector<Step> steps;
  if (is_combined()) return steps;
  const DataType type = type_ == DType::kFloat64 ? kFloat64 : kFloat32;
  const auto add = [&](Function function, Rank peer) {
    steps.push_back({.function = function,
                     .send = function == Function::kSend ? mine_ : nullptr,
                     .receive = function == Function::kRecv ? theirs_ : nullptr,
                     .count = count_,
                     .type = type,
                     .peer = peer});
  };
  for (const Rank to : levels_[level_].to) add(Function::kSend, to);
  add(Function::kRecv, levels_[level_].from);
  return steps;
}

Status Adasum::combine() {
  RUEDA_CHECK(!is_combined(), "every level has been combined");
  const bool is_left = levels_[level_++].is_left;
  const std::byte* const left = is_left ? mine_ : theirs_;
  const std::byte* const right = is_left ? theirs_ : mine_;
  return gpu_.kernels().adasum(gpu_.stream(), type_, tensors_, left, right, mine_, scratch_);
}

Status Adasum::finish(const Scale& scale) {
  if (count_ == 0) return Status::ok();
  cuda::Kernels& kernels = gpu_.kernels();
  if (!scale.is_identity()) {
    const Status scaled = kernels.scale(gpu_.stream(), type_, mine_, mine_, count_, scale);
    if (!scaled.is_ok()) return scaled;
  }
  if (type_ == dtype_) return Status::ok();
  return kernels.cast(gpu_.stream(), type_, mine_, dtype_, result_, count_);
}

}  // namespace rueda::nccl
