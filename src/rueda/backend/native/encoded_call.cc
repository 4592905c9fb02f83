#include "rueda/backend/native/encoded_call.h"

#include <algorithm>

#include "rueda/backend/segments.h"
#include "rueda/kernels/kernels.h"

namespace rueda::backend {
namespace {
constexpr int64_t kAtOnce = 8 * kWireBlock;  // elements that stay in the L1 cache from one pass to the next
}  // namespace

void EncodedCall::begin(Call& call) {
  layout_.assign(call.segments, call.group->size());
  call.spec.counts = layout_.owned();
  call.spec.count = layout_.count();
  call_ = &call;
  input_ = nullptr;
  encoded_.clear();
}

Status EncodedCall::prepare(const PreparedSchedule& schedule) {
  const bool has_residuals =
      std::ranges::any_of(call_->segments, [](const Segment& one) { return one.residual.sent != nullptr; });
  const int64_t packed = schedule.reads_input ? layout_.count() : 0;
  const int64_t replaced = has_residuals ? schedule.encoded_count : 0;
  const Result<std::byte*> buffer = buffer_.reserve(static_cast<size_t>(packed + replaced) * sizeof(float));
  if (!buffer.is_ok()) return buffer.status();
  auto* const room = reinterpret_cast<float*>(buffer.value());
  replaced_ = replaced_end_ = room + packed;
  if (!schedule.reads_input) return Status::ok();
  input_ = room;
  pack();
  return Status::ok();
}

void EncodedCall::pack() {
  call_->note(Activity::kPack);
  for (const WireLayout::Piece& piece : layout_.pieces()) {
    const Segment& tensor = call_->segments[piece.segment];
    load_filled(tensor, piece.within, piece.count, piece.filled, input_ + piece.begin);
  }
}

// Writes `filled` elements to `to`: `count` of the tensor from `begin` on, then zeros.
void EncodedCall::load_filled(const Segment& tensor, int64_t begin, int64_t count, int64_t filled,
                              float* to) const {
  load(call_->spec, call_->prescale, tensor, static_cast<size_t>(begin), static_cast<size_t>(count),
       reinterpret_cast<std::byte*>(to));
  std::fill(to + count, to + filled, 0.0F);
}

// Where a residual begins that belongs to a piece; null: the tensor has none.
float* EncodedCall::residual(const WireLayout::Piece& piece, bool is_result) const {
  const Residual& all = call_->segments[piece.segment].residual;
  float* const begin = is_result ? all.owned : all.sent;
  return begin == nullptr ? nullptr : begin + piece.within;
}

// `filled` elements of the run, of which `count` are of the tensor: in the tensor itself, or written to room.
const float* EncodedCall::input_of(const WireLayout::Piece& piece, int64_t offset, int64_t filled,
                                   int64_t count, float* room) const {
  const Segment& tensor = call_->segments[piece.segment];
  const int64_t begin = piece.within + offset;
  if (tensor.input != nullptr && call_->prescale == 1.0 && count == filled)
    return static_cast<const float*>(tensor.input) + begin;
  load_filled(tensor, begin, count, filled, room);
  return room;
}

void EncodedCall::encode(const schedule::Slice& to, const std::byte* from, std::byte* out) {
  const schedule::Spec& spec = call_->spec;
  const bool is_result = to.begin >= spec.count;
  const Encoded& now = encoded_.emplace_back(
      Encoded{.begin = to.begin % spec.count, .count = to.count, .is_result = is_result});
  const auto* sums = reinterpret_cast<const float*>(from);
  alignas(64) float room[kAtOnce];
  layout_.for_range(now.begin, now.begin + now.count,
                    [&](const WireLayout::Piece& piece, int64_t offset, int64_t size, int64_t of_tensor) {
                      float* const kept = residual(piece, is_result);
                      for (int64_t at = 0; at < size; at += kAtOnce) {
                        const int64_t count = std::min(kAtOnce, size - at);
                        const auto blocks = static_cast<size_t>(count / kWireBlock);
                        const float* const values =
                            sums != nullptr ? sums + at
                                            : input_of(piece, offset + at, count,
                                                       std::clamp<int64_t>(of_tensor - at, 0, count), room);
                        float* const error = kept == nullptr ? nullptr : kept + offset + at;
                        if (error != nullptr) replaced_end_ = std::copy_n(error, count, replaced_end_);
                        kernels::encode(spec.wire, values, error, error, out, blocks);
                        out += blocks * static_cast<size_t>(wire_block_bytes(spec.wire));
                      }
                      if (sums != nullptr) sums += size;
                    });
}

void EncodedCall::deliver(const schedule::Slice& to, const std::byte* encoded) const {
  const schedule::Spec& spec = call_->spec;
  layout_.for_range(to.begin, to.begin + to.count,
                    [&](const WireLayout::Piece& piece, int64_t offset, int64_t size, int64_t of_tensor) {
                      float* out =
                          static_cast<float*>(call_->segments[piece.segment].output) + piece.within + offset;
                      for (int64_t at = 0; at < of_tensor; at += kAtOnce) {
                        const auto count = static_cast<size_t>(std::min(kAtOnce, of_tensor - at));
                        kernels::decode(spec.wire, encoded + at / kWireBlock * wire_block_bytes(spec.wire),
                                        nullptr, out + at, count);
                        if (!spec.scale.is_identity())
                          kernels::scale(spec.dtype, out + at, out + at, count, spec.scale);
                      }
                      encoded += size / kWireBlock * wire_block_bytes(spec.wire);
                    });
}

void EncodedCall::roll_back() {
  const float* from = replaced_;
  for (const Encoded& one : encoded_) {
    layout_.for_range(
        one.begin, one.begin + one.count,
        [&](const WireLayout::Piece& piece, int64_t offset, int64_t size, int64_t /*of_tensor*/) {
          float* const kept = residual(piece, one.is_result);
          if (kept == nullptr) return;
          std::copy_n(from, size, kept + offset);
          from += size;
        });
  }
  encoded_.clear();
}

}  // namespace rueda::backend
