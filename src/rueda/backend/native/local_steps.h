// The memory of one call, and what its steps do to it. Here schedules meet the kernels. Engine thread only.
#pragma once

#include <cstddef>
#include <span>

#include "rueda/backend/native/prepared_schedule.h"
#include "rueda/schedule/step.h"
#include "rueda/transport/transport.h"

namespace rueda::backend {

// A run of elements and their type.
struct Operand {
  const std::byte* data = nullptr;
  DType type = DType::kFloat32;
};

class EncodedCall;

struct Buffers {
  const schedule::Spec* spec = nullptr;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::byte* scratch = nullptr;
  std::byte* wire = nullptr;
  EncodedCall* encoded = nullptr;  // of a call with a wire type

  [[nodiscard]] size_t bytes_of(const schedule::Slice& slice) const;
  [[nodiscard]] const std::byte* read(const schedule::Slice& slice) const;
  [[nodiscard]] std::byte* write(const schedule::Slice& slice) const;  // must not be in the input
  [[nodiscard]] Operand operand(const schedule::Slice& slice) const {
    return {read(slice), type_of(*spec, slice.buffer)};
  }
};

// acc_out[i] = a[i] op b[i] in the accumulator type; either operand may be elements or accumulators.
void combine(const schedule::Spec& spec, Operand a, Operand b, std::byte* acc_out, size_t count);

// A copy, reduction, finish or Adasum step.
void run_local(const schedule::Step& step, const Buffers& buffers);

// About how many bytes a local step touches, to limit the work of one round of progress.
size_t work_of(const schedule::Step& step, const Buffers& buffers);

// Processes the bytes of a receive that reduces or widens, piece by piece as they arrive.
class StepConsumer final : public transport::Consumer {
 public:
  void reset(const schedule::Step& step, const Buffers& buffers) {
    step_ = &step;
    buffers_ = &buffers;
    received_ = 0;
  }
  void consume(size_t offset, std::span<const std::byte> piece) override;
  [[nodiscard]] size_t received() const { return received_; }  // bytes

 private:
  const schedule::Step* step_ = nullptr;
  const Buffers* buffers_ = nullptr;
  size_t received_ = 0;
};

}  // namespace rueda::backend
