#include "rueda/backend/native/encoded_call.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "rueda/backend/segments.h"
#include "rueda/kernels/kernels.h"

namespace rueda::backend {

void EncodedCall::begin(Call& call) {
  layout_.assign(call.segments, call.group->size());
  call.spec.counts = layout_.owned();
  call.spec.count = layout_.count();
  my_begin_ = std::accumulate(layout_.owned().begin(), layout_.owned().begin() + call.group->me, int64_t{0});
  call_ = &call;
  input_ = nullptr;
  encoded_.clear();
}

Status EncodedCall::pack() {
  const int64_t mine = layout_.owned()[static_cast<size_t>(call_->group->me)];
  const Result<std::byte*> buffer =
      buffer_.reserve(static_cast<size_t>(layout_.count() + mine) * sizeof(float));
  if (!buffer.is_ok()) return buffer.status();
  call_->note(Activity::kPack);
  input_ = reinterpret_cast<float*>(buffer.value());
  for (const WireLayout::Piece& piece : layout_.pieces()) {
    float* const to = input_ + piece.begin;
    load(call_->spec, call_->prescale, call_->segments[piece.segment], static_cast<size_t>(piece.within),
         static_cast<size_t>(piece.count), reinterpret_cast<std::byte*>(to));
    std::fill(to + piece.count, to + piece.filled, 0.0F);
  }
  return Status::ok();
}

float* EncodedCall::lost(const Encoded& encoded) const {
  if (!encoded.is_result) return input_ + encoded.begin;
  return input_ + layout_.count() + (encoded.begin - my_begin_);
}

void EncodedCall::encode(const schedule::Slice& to, const std::byte* from, std::byte* out) {
  const schedule::Spec& spec = call_->spec;
  const bool is_result = to.begin >= spec.count;
  const Encoded& now = encoded_.emplace_back(
      Encoded{.begin = to.begin % spec.count, .count = to.count, .is_result = is_result});
  float* error = lost(now);
  const auto* values = reinterpret_cast<const float*>(from);
  layout_.for_range(now.begin, now.begin + now.count,
                    [&](const WireLayout::Piece& piece, int64_t offset, int64_t size, int64_t /*of_tensor*/) {
                      const float* before = residual(call_->segments[piece.segment], is_result);
                      const bool has_residual = before != nullptr;
                      const auto blocks = static_cast<size_t>(size / kWireBlock);
                      if (has_residual) before += piece.within + offset;
                      kernels::encode(spec.wire, values, before, has_residual ? error : nullptr, out, blocks);
                      values += size;
                      error += size;
                      out += blocks * static_cast<size_t>(wire_block_bytes(spec.wire));
                    });
}

void EncodedCall::deliver(const schedule::Slice& to, const std::byte* encoded) const {
  constexpr int64_t kAtOnce = 16 * kWireBlock;  // stays in the L1 cache between decoding and scaling
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

void EncodedCall::commit() const {
  for (const Encoded& one : encoded_) {
    const float* error = lost(one);
    layout_.for_range(
        one.begin, one.begin + one.count,
        [&](const WireLayout::Piece& piece, int64_t offset, int64_t size, int64_t /*of_tensor*/) {
          float* const to = residual(call_->segments[piece.segment], one.is_result);
          if (to != nullptr)
            std::memcpy(to + piece.within + offset, error, static_cast<size_t>(size) * sizeof(float));
          error += size;
        });
  }
}

}  // namespace rueda::backend
