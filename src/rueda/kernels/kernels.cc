// Maps element types and ReduceOps onto the loops of the chosen table.
#include "rueda/kernels/kernels.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "rueda/base/check.h"
#include "rueda/kernels/integers.h"
#include "rueda/kernels/table.h"

namespace rueda::kernels {
namespace {

// Elements handled between two passes over the same cache lines: 4 KiB of float32, well inside L1.
constexpr size_t kBlock = 1024;

// A bool is one byte, 0 or not 0. So OR is the larger byte, and AND the smaller one.
Op op_of(ReduceOp op, DType dtype) {
  const bool is_bool = dtype == DType::kBool;
  switch (op) {
    case ReduceOp::kSum:
      return is_bool ? Op::kMax : Op::kSum;
    case ReduceOp::kProduct:
      return is_bool ? Op::kMin : Op::kProduct;
    case ReduceOp::kMin:
      return Op::kMin;
    case ReduceOp::kMax:
      return Op::kMax;
    case ReduceOp::kAverage:
    case ReduceOp::kAdasum:
      break;
  }
  RUEDA_CHECK(false, "only sum, min, max and product reduce element by element");
  return Op::kSum;
}

Half half_of(DType dtype) { return dtype == DType::kFloat16 ? Half::kFloat16 : Half::kBfloat16; }
Half half_of(Wire wire) { return wire == Wire::kFloat16 ? Half::kFloat16 : Half::kBfloat16; }
Real real_of(DType dtype) { return dtype == DType::kFloat64 ? Real::kFloat64 : Real::kFloat32; }

ReduceFn reduction_of(const Table& table, DType dtype, Op op) {
  const auto pick = [op](const ReduceFn(&reductions)[kOpCount]) { return reductions[static_cast<int>(op)]; };
  const auto integer = [&](Integer type) { return pick(table.reduce_integer[static_cast<int>(type)]); };
  switch (dtype) {
    case DType::kUint8:
    case DType::kBool:
      return integer(Integer::kUint8);
    case DType::kInt8:
      return integer(Integer::kInt8);
    case DType::kUint16:
      return integer(Integer::kUint16);
    case DType::kInt16:
      return integer(Integer::kInt16);
    case DType::kInt32:
      return integer(Integer::kInt32);
    case DType::kInt64:
      return integer(Integer::kInt64);
    case DType::kFloat16:
    case DType::kBfloat16:
      return pick(table.reduce_half[static_cast<int>(half_of(dtype))]);
    case DType::kFloat32:
    case DType::kFloat64:
      return pick(table.reduce_real[static_cast<int>(real_of(dtype))]);
  }
  RUEDA_CHECK(false, "a dtype was not validated where it entered");
  return nullptr;
}

const std::byte* at(const void* base, DType dtype, size_t index) {
  return static_cast<const std::byte*>(base) + index * size_of(dtype);
}
std::byte* at(void* base, DType dtype, size_t index) {
  return static_cast<std::byte*>(base) + index * size_of(dtype);
}

void copy(const void* in, void* out, size_t bytes) {
  if (in != out && bytes != 0) std::memcpy(out, in, bytes);
}

// Plain code scales integers after the reduction, block by block, through a buffer that stays in cache. There
// may be any number of sources; they are reduced a window at a time. `out` may be one of them, so nothing is
// written to it before all sources of the block have been read.
void reduce_integers_scaled(ReduceFn reduction, DType dtype, std::span<const void* const> sources, void* out,
                            const Scale& scale, size_t count) {
  constexpr size_t kWindow = 32;
  std::array<const void*, kWindow + 1> window;
  alignas(64) std::byte block[kBlock * sizeof(int64_t)];
  for (size_t begin = 0; begin < count; begin += kBlock) {
    const size_t size = std::min(kBlock, count - begin);
    for (size_t first = 0; first < sources.size(); first += kWindow) {
      size_t used = 0;
      if (first != 0) window[used++] = block;
      const size_t last = std::min(first + kWindow, sources.size());
      for (size_t k = first; k < last; ++k) window[used++] = at(sources[k], dtype, begin);
      reduction(window.data(), used, block, size, nullptr);
    }
    scale_integers(dtype, block, at(out, dtype, begin), size, scale);
  }
}

template <class T>
void fill(void* out, size_t count, T value) {
  std::fill_n(static_cast<T*>(out), count, value);
}

template <class T>
void fill_type(ReduceOp op, void* out, size_t count) {
  using Limits = std::numeric_limits<T>;
  if (op == ReduceOp::kMin)
    return fill(out, count, Limits::has_infinity ? Limits::infinity() : Limits::max());
  if (op == ReduceOp::kMax)
    return fill(out, count, static_cast<T>(Limits::has_infinity ? -Limits::infinity() : Limits::lowest()));
  fill(out, count, static_cast<T>(op == ReduceOp::kProduct ? 1 : 0));
}

// Infinity and one, as bit patterns of a 16-bit float.
void fill_half(ReduceOp op, void* out, size_t count, uint16_t infinity, uint16_t one) {
  constexpr uint16_t kSign = 0x8000;
  uint16_t value = 0;
  if (op == ReduceOp::kMin) value = infinity;
  if (op == ReduceOp::kMax) value = static_cast<uint16_t>(infinity | kSign);
  if (op == ReduceOp::kProduct) value = one;
  fill(out, count, value);
}

double total(const double (&parts)[8]) {
  return ((parts[0] + parts[4]) + (parts[2] + parts[6])) + ((parts[1] + parts[5]) + (parts[3] + parts[7]));
}

// One block of a 16-bit vector, as float32.
struct WideBlock {
  alignas(64) float values[kBlock];
  void load(const Table& table, DType dtype, const void* from, size_t begin, size_t size) {
    const auto* in = static_cast<const uint16_t*>(from) + begin;
    table.widen[static_cast<int>(half_of(dtype))](in, values, size);
  }
};

Dots dots_of(const Table& table, DType dtype, const void* a, const void* b, size_t count) {
  Dots dots;
  if (!is_16bit_float(dtype)) {
    table.dot[static_cast<int>(real_of(dtype))](a, b, count, dots);
    return dots;
  }
  WideBlock wide_a, wide_b;
  for (size_t begin = 0; begin < count; begin += kBlock) {
    const size_t size = std::min(kBlock, count - begin);
    wide_a.load(table, dtype, a, begin, size);
    wide_b.load(table, dtype, b, begin, size);
    table.dot[static_cast<int>(Real::kFloat32)](wide_a.values, wide_b.values, size, dots);
  }
  return dots;
}

}  // namespace

void reduce(ReduceOp op, DType dtype, const void* a, const void* b, void* out, size_t count) {
  const std::array<const void*, 2> sources{a, b};
  reduction_of(table(), dtype, op_of(op, dtype))(sources.data(), sources.size(), out, count, nullptr);
}

void accumulate(ReduceOp op, DType dtype, const void* acc_in, const void* in, void* acc_out, size_t count) {
  if (!is_16bit_float(dtype)) return reduce(op, dtype, acc_in, in, acc_out, count);
  const auto half = static_cast<int>(half_of(dtype));
  const auto loop = table().accumulate[half][static_cast<int>(op_of(op, dtype))];
  loop(static_cast<const float*>(acc_in), static_cast<const uint16_t*>(in), static_cast<float*>(acc_out),
       count);
}

void widen(DType dtype, const void* in, void* acc, size_t count) {
  if (!is_16bit_float(dtype)) return copy(in, acc, count * size_of(dtype));
  table().widen[static_cast<int>(half_of(dtype))](static_cast<const uint16_t*>(in), static_cast<float*>(acc),
                                                  count);
}

void finish(DType dtype, const void* acc, void* out, size_t count, const Scale& scale_by) {
  if (!is_16bit_float(dtype)) return scale(dtype, acc, out, count, scale_by);
  const FloatScale float_scale{static_cast<double>(scale_by.divisor), scale_by.factor};
  table().narrow[static_cast<int>(half_of(dtype))](static_cast<const float*>(acc),
                                                   static_cast<uint16_t*>(out), count,
                                                   scale_by.is_identity() ? nullptr : &float_scale);
}

void scale(DType dtype, const void* in, void* out, size_t count, const Scale& factor) {
  if (factor.is_identity()) return copy(in, out, count * size_of(dtype));
  // A single source is reduced with nothing, so the op does not matter. Max keeps the value of a bool.
  reduce_sources(ReduceOp::kMax, dtype, {&in, 1}, out, count, factor);
}

void reduce_sources(ReduceOp op, DType dtype, std::span<const void* const> sources, void* out, size_t count,
                    const Scale& scale) {
  RUEDA_CHECK(!sources.empty(), "a reduction needs at least one source");
  const ReduceFn reduction = reduction_of(table(), dtype, op_of(op, dtype));
  if (scale.is_identity()) return reduction(sources.data(), sources.size(), out, count, nullptr);
  if (!is_floating(dtype)) return reduce_integers_scaled(reduction, dtype, sources, out, scale, count);
  const FloatScale float_scale{static_cast<double>(scale.divisor), scale.factor};
  reduction(sources.data(), sources.size(), out, count, &float_scale);
}

void encode(Wire wire, const float* in, const float* error_in, float* error_out, std::byte* out,
            size_t blocks) {
  RUEDA_CHECK(wire != Wire::kExact, "exact sums are not encoded");
  const Table& loops = table();
  if (wire == Wire::kInt8) return loops.encode_int8(in, error_in, error_out, out, blocks);
  loops.encode_half[static_cast<int>(half_of(wire))](in, error_in, error_out, out, blocks);
}

void decode(Wire wire, const std::byte* in, const float* acc_in, float* out, size_t count) {
  RUEDA_CHECK(wire != Wire::kExact, "exact sums are not encoded");
  const Table& loops = table();
  if (wire == Wire::kInt8) return loops.decode_int8(in, acc_in, out, count);
  loops.decode_half[static_cast<int>(half_of(wire))](in, acc_in, out, count);
}

void adasum(DType dtype, const void* a, const void* b, void* out, size_t count) {
  RUEDA_CHECK(is_floating(dtype), "Adasum is for floating-point types");
  const Table& loops = table();
  const Dots dots = dots_of(loops, dtype, a, b, count);
  const double ab = total(dots.ab), aa = total(dots.aa), bb = total(dots.bb);
  static const double kTiny = 0x1p-511;  // sqrt(DBL_MIN), exactly
  const double a_factor = aa < kTiny ? 1.0 : 1.0 - ab / (2 * aa);
  const double b_factor = bb < kTiny ? 1.0 : 1.0 - ab / (2 * bb);
  if (!is_16bit_float(dtype))
    return loops.combine[static_cast<int>(real_of(dtype))](a_factor, a, b_factor, b, out, count);
  WideBlock wide_a, wide_b;
  for (size_t begin = 0; begin < count; begin += kBlock) {
    const size_t size = std::min(kBlock, count - begin);
    wide_a.load(loops, dtype, a, begin, size);
    wide_b.load(loops, dtype, b, begin, size);
    const auto combine = loops.combine[static_cast<int>(Real::kFloat32)];
    combine(a_factor, wide_a.values, b_factor, wide_b.values, wide_a.values, size);
    const auto narrow = loops.narrow[static_cast<int>(half_of(dtype))];
    narrow(wide_a.values, static_cast<uint16_t*>(out) + begin, size, nullptr);
  }
}

void fill_identity(ReduceOp op, DType dtype, void* out, size_t count) {
  const bool is_sum = op == ReduceOp::kAverage || op == ReduceOp::kAdasum;
  const ReduceOp plain = is_sum ? ReduceOp::kSum : op;
  switch (dtype) {
    case DType::kUint8:
      return fill_type<uint8_t>(plain, out, count);
    case DType::kInt8:
      return fill_type<int8_t>(plain, out, count);
    case DType::kUint16:
      return fill_type<uint16_t>(plain, out, count);
    case DType::kInt16:
      return fill_type<int16_t>(plain, out, count);
    case DType::kInt32:
      return fill_type<int32_t>(plain, out, count);
    case DType::kInt64:
      return fill_type<int64_t>(plain, out, count);
    case DType::kFloat32:
      return fill_type<float>(plain, out, count);
    case DType::kFloat64:
      return fill_type<double>(plain, out, count);
    case DType::kFloat16:
      return fill_half(plain, out, count, 0x7C00, 0x3C00);
    case DType::kBfloat16:
      return fill_half(plain, out, count, 0x7F80, 0x3F80);
    case DType::kBool: {
      const bool is_and = plain == ReduceOp::kMin || plain == ReduceOp::kProduct;
      return fill<uint8_t>(out, count, is_and ? 1 : 0);
    }
  }
}

const char* active_target() { return table().name; }

}  // namespace rueda::kernels
