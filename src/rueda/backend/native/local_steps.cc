#include "rueda/backend/native/local_steps.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "rueda/backend/native/encoded_call.h"
#include "rueda/base/check.h"
#include "rueda/kernels/kernels.h"

namespace rueda::backend {
namespace {

using schedule::Buffer;
using schedule::Slice;
using schedule::Spec;
using schedule::Step;
using schedule::StepKind;

constexpr size_t kBlock = 1024;  // elements widened at a time, so that they stay in the L1 cache

// to = from2 (+ from, unless it is null), where from2 is encoded and the others are sums.
void decode(const Step& step, const Slice* from, const Slice& encoded, const Buffers& buffers) {
  const auto* sum = from == nullptr ? nullptr : reinterpret_cast<const float*>(buffers.read(*from));
  kernels::decode(buffers.spec->wire, buffers.read(encoded), sum,
                  reinterpret_cast<float*>(buffers.write(step.to)), static_cast<size_t>(step.to.count));
}

void copy(const Step& step, const Buffers& buffers) {
  if (step.from.buffer == Buffer::kWire) return decode(step, nullptr, step.from, buffers);
  const Operand from = buffers.operand(step.from);
  std::byte* to = buffers.write(step.to);
  if (from.type != type_of(*buffers.spec, step.to.buffer))
    return kernels::widen(from.type, from.data, to, static_cast<size_t>(step.to.count));
  // memmove, because input and output may be the same memory (the slices are equal then).
  if (to != from.data && step.to.count != 0) std::memmove(to, from.data, buffers.bytes_of(step.to));
}

void reduce(const Step& step, const Buffers& buffers) {
  if (step.from2.buffer == Buffer::kWire) return decode(step, &step.from, step.from2, buffers);
  combine(*buffers.spec, buffers.operand(step.from), buffers.operand(step.from2), buffers.write(step.to),
          static_cast<size_t>(step.to.count));
}

void finish(const Step& step, const Buffers& buffers) {
  if (step.from.buffer == Buffer::kWire) return buffers.encoded->deliver(step.to, buffers.read(step.from));
  const Spec& spec = *buffers.spec;
  const Operand from = buffers.operand(step.from);
  std::byte* to = buffers.write(step.to);
  const auto count = static_cast<size_t>(step.to.count);
  if (from.type == spec.dtype) return kernels::scale(spec.dtype, from.data, to, count, spec.scale);
  kernels::finish(spec.dtype, from.data, to, count, spec.scale);
}

// The inputs of this rank are encoded from where the tensors are.
void encode(const Step& step, const Buffers& buffers) {
  const std::byte* const sums = step.from.buffer == Buffer::kInput ? nullptr : buffers.read(step.from);
  buffers.encoded->encode(step.to, sums, buffers.write(step.to));
}

// Each tensor of a fused call has its own coefficients. The slices span the whole call.
void adasum(const Step& step, const Buffers& buffers) {
  const Spec& spec = *buffers.spec;
  const Operand a = buffers.operand(step.from), b = buffers.operand(step.from2);
  RUEDA_CHECK(a.type == b.type && a.type == type_of(spec, step.to.buffer),
              "Adasum between different element types");
  std::byte* out = buffers.write(step.to);
  if (spec.segment_counts.empty())
    return kernels::adasum(a.type, a.data, b.data, out, static_cast<size_t>(step.to.count));
  const int64_t total = std::accumulate(spec.segment_counts.begin(), spec.segment_counts.end(), int64_t{0});
  RUEDA_CHECK(total == step.to.count, "Adasum needs whole tensors: its slices must span all segments");
  size_t at = 0;
  for (const int64_t segment : spec.segment_counts) {
    kernels::adasum(a.type, a.data + at, b.data + at, out + at, static_cast<size_t>(segment));
    at += static_cast<size_t>(segment) * size_of(a.type);
  }
}

}  // namespace

size_t Buffers::bytes_of(const Slice& slice) const {
  if (slice.buffer == Buffer::kWire)
    return static_cast<size_t>(slice.count / kWireBlock * wire_block_bytes(spec->wire));
  return static_cast<size_t>(slice.count) * size_of(type_of(*spec, slice.buffer));
}

const std::byte* Buffers::read(const Slice& slice) const {
  if (slice.buffer == Buffer::kWire) return write(slice);
  const std::byte* base = slice.buffer == Buffer::kInput    ? input
                          : slice.buffer == Buffer::kOutput ? output
                                                            : scratch;
  if (slice.count == 0) return base;  // may be null
  return base + static_cast<size_t>(slice.begin) * size_of(type_of(*spec, slice.buffer));
}

std::byte* Buffers::write(const Slice& slice) const {
  if (slice.buffer == Buffer::kWire) return wire + slice.begin / kWireBlock * wire_block_bytes(spec->wire);
  std::byte* base = slice.buffer == Buffer::kOutput ? output : scratch;
  if (slice.count == 0) return base;
  RUEDA_CHECK(slice.buffer != Buffer::kInput, "a step writes the input");
  return base + static_cast<size_t>(slice.begin) * size_of(type_of(*spec, slice.buffer));
}

void combine(const Spec& spec, Operand a, Operand b, std::byte* acc_out, size_t count) {
  const DType acc = accumulator_of(spec.dtype);
  if (a.type == acc && b.type == acc) return kernels::reduce(spec.op, acc, a.data, b.data, acc_out, count);
  if (a.type == acc) return kernels::accumulate(spec.op, spec.dtype, a.data, b.data, acc_out, count);
  // a holds 16-bit floats. They are widened block by block, because acc_out may be b.
  alignas(64) float wide[kBlock];
  for (size_t begin = 0; begin < count; begin += kBlock) {
    const size_t size = std::min(kBlock, count - begin);
    const std::byte* next = b.data + begin * size_of(b.type);
    std::byte* out = acc_out + begin * sizeof(float);
    kernels::widen(spec.dtype, a.data + begin * size_of(a.type), wide, size);
    if (b.type == acc)
      kernels::reduce(spec.op, acc, wide, next, out, size);
    else
      kernels::accumulate(spec.op, spec.dtype, wide, next, out, size);
  }
}

void run_local(const Step& step, const Buffers& buffers) {
  switch (step.kind) {
    case StepKind::kCopy:
      return copy(step, buffers);
    case StepKind::kReduce:
      return reduce(step, buffers);
    case StepKind::kFinish:
      return finish(step, buffers);
    case StepKind::kAdasum:
      return adasum(step, buffers);
    case StepKind::kEncode:
      return encode(step, buffers);
    case StepKind::kSend:
    case StepKind::kRecv:
    case StepKind::kRecvReduce:
      break;
  }
  RUEDA_CHECK(false, "a message is not a local step");
}

size_t work_of(const Step& step, const Buffers& buffers) {
  return buffers.bytes_of(step.to) + buffers.bytes_of(step.from) + buffers.bytes_of(step.from2);
}

void StepConsumer::consume(size_t offset, std::span<const std::byte> piece) {
  const Spec& spec = *buffers_->spec;
  const DType wire = type_of(spec, step_->wire);
  const size_t begin = offset / size_of(wire), count = piece.size() / size_of(wire);
  RUEDA_CHECK(offset == received_, "pieces of a message arrive in order");
  RUEDA_CHECK(piece.size() % size_of(wire) == 0 && begin + count <= static_cast<size_t>(step_->to.count),
              "a piece is whole elements within its message");
  received_ += piece.size();
  const DType to_type = type_of(spec, step_->to.buffer);
  std::byte* to = buffers_->write(step_->to) + begin * size_of(to_type);
  if (step_->kind == StepKind::kRecv) return kernels::widen(wire, piece.data(), to, count);
  Operand mine = buffers_->operand(step_->from);
  mine.data += begin * size_of(mine.type);
  combine(spec, mine, {piece.data(), wire}, to, count);
}

}  // namespace rueda::backend
