// The scalar definition with which the kernels are compared: one element at a time, written for reading.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "rueda/base/types.h"

namespace rueda::kernels_test {

// ---- 16-bit floats, by arithmetic on values rather than on bits ----

// Value of a 16-bit pattern with `mantissa_bits` of mantissa and the rest exponent.
inline float widen16(uint16_t bits, int mantissa_bits) {
  const int exponent_bits = 15 - mantissa_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (bits & 0x7FFF) >> mantissa_bits;
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const float sign = (bits & 0x8000) != 0 ? -1.0f : 1.0f;
  if (exponent == (1 << exponent_bits) - 1) {
    if (mantissa == 0) return sign * std::numeric_limits<float>::infinity();
    const uint32_t payload = static_cast<uint32_t>(mantissa) << (23 - mantissa_bits);
    return std::bit_cast<float>(((bits & 0x8000u) << 16) | 0x7F800000u | payload);
  }
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(mantissa), 1 - bias - mantissa_bits);
  return sign *
         std::ldexp(static_cast<float>(mantissa + (1 << mantissa_bits)), exponent - bias - mantissa_bits);
}

// The 16-bit pattern nearest to value, ties to the even one.
inline uint16_t narrow16(float value, int mantissa_bits) {
  const int exponent_bits = 15 - mantissa_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const uint16_t infinity = static_cast<uint16_t>(((1 << exponent_bits) - 1) << mantissa_bits);
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const uint32_t raw = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) {
    const uint32_t payload = (raw & 0x7FFFFF) >> (23 - mantissa_bits);
    return static_cast<uint16_t>(sign | infinity | payload | (1u << (mantissa_bits - 1)));
  }
  if (value == 0 || std::isinf(value)) return static_cast<uint16_t>(sign | (value == 0 ? 0 : infinity));
  const double magnitude = std::abs(static_cast<double>(value));
  const int exponent = std::max(std::ilogb(magnitude), 1 - bias);  // of the binade, or of the subnormals
  // In units of the last place; doubles hold this exactly, and nearbyint rounds ties to even.
  const double units = std::nearbyint(std::ldexp(magnitude, mantissa_bits - exponent));
  // A subnormal has exponent field 0; a carry out of the mantissa moves to the next field by itself.
  const auto below_one = static_cast<int64_t>(units) - (int64_t{1} << mantissa_bits);
  const int64_t pattern = (static_cast<int64_t>(exponent + bias) << mantissa_bits) + below_one;
  return static_cast<uint16_t>(sign | std::min<int64_t>(pattern, infinity));
}

inline int mantissa_bits_of(DType dtype) { return dtype == DType::kFloat16 ? 10 : 7; }

// ---- element types ----

// The C++ type of an element, its accumulator, and how to get from one to the other.
template <DType kType>
struct Element;
#define RUEDA_TEST_ELEMENT(dtype, cpp)         \
  template <>                                  \
  struct Element<dtype> {                      \
    using Raw = cpp;                           \
    using Acc = cpp;                           \
    static Acc widen(Raw raw) { return raw; }  \
    static Raw narrow(Acc acc) { return acc; } \
  };
RUEDA_TEST_ELEMENT(DType::kUint8, uint8_t)
RUEDA_TEST_ELEMENT(DType::kInt8, int8_t)
RUEDA_TEST_ELEMENT(DType::kUint16, uint16_t)
RUEDA_TEST_ELEMENT(DType::kInt16, int16_t)
RUEDA_TEST_ELEMENT(DType::kInt32, int32_t)
RUEDA_TEST_ELEMENT(DType::kInt64, int64_t)
RUEDA_TEST_ELEMENT(DType::kFloat32, float)
RUEDA_TEST_ELEMENT(DType::kFloat64, double)
RUEDA_TEST_ELEMENT(DType::kBool, uint8_t)
#undef RUEDA_TEST_ELEMENT
template <DType kType>
struct HalfElement {
  using Raw = uint16_t;
  using Acc = float;
  static Acc widen(Raw raw) {
    const float value = widen16(raw, mantissa_bits_of(kType));
    return std::isnan(value) ? std::bit_cast<float>(std::bit_cast<uint32_t>(value) | 0x400000u) : value;
  }
  static Raw narrow(Acc acc) { return narrow16(acc, mantissa_bits_of(kType)); }
};
template <>
struct Element<DType::kFloat16> : HalfElement<DType::kFloat16> {};
template <>
struct Element<DType::kBfloat16> : HalfElement<DType::kBfloat16> {};

// Calls f with the DType as a compile-time constant.
template <class F>
auto with_type(DType dtype, F f) {
  switch (dtype) {
    case DType::kUint8:
      return f(std::integral_constant<DType, DType::kUint8>());
    case DType::kInt8:
      return f(std::integral_constant<DType, DType::kInt8>());
    case DType::kUint16:
      return f(std::integral_constant<DType, DType::kUint16>());
    case DType::kInt16:
      return f(std::integral_constant<DType, DType::kInt16>());
    case DType::kInt32:
      return f(std::integral_constant<DType, DType::kInt32>());
    case DType::kInt64:
      return f(std::integral_constant<DType, DType::kInt64>());
    case DType::kFloat16:
      return f(std::integral_constant<DType, DType::kFloat16>());
    case DType::kFloat32:
      return f(std::integral_constant<DType, DType::kFloat32>());
    case DType::kFloat64:
      return f(std::integral_constant<DType, DType::kFloat64>());
    case DType::kBool:
      return f(std::integral_constant<DType, DType::kBool>());
    case DType::kBfloat16:
      break;
  }
  return f(std::integral_constant<DType, DType::kBfloat16>());
}

// ---- operations ----

template <class T>
T combine_one(ReduceOp op, bool is_bool, T a, T b) {
  if (is_bool) {
    const bool is_or = op == ReduceOp::kSum || op == ReduceOp::kMax;
    return static_cast<T>(is_or ? (a != 0 || b != 0) : (a != 0 && b != 0));
  }
  if constexpr (std::is_floating_point_v<T>) {
    if (op == ReduceOp::kSum) return a + b;
    if (op == ReduceOp::kProduct) return a * b;
    if (std::isnan(a)) return a;
    if (std::isnan(b)) return b;
    return op == ReduceOp::kMin ? (a < b ? a : b) : (a > b ? a : b);
  } else {
    const auto ua = static_cast<uint64_t>(a), ub = static_cast<uint64_t>(b);
    if (op == ReduceOp::kSum) return static_cast<T>(ua + ub);
    if (op == ReduceOp::kProduct) return static_cast<T>(ua * ub);
    return op == ReduceOp::kMin ? std::min(a, b) : std::max(a, b);
  }
}

template <class T>
T scale_one(const Scale& scale, bool is_bool, T x) {
  if (scale.is_identity()) return x;
  if (is_bool) return x != 0 && scale.factor != 0;
  if constexpr (std::is_floating_point_v<T>) {
    const T quotient = x / static_cast<T>(scale.divisor);
    return quotient * static_cast<T>(scale.factor);
  } else {
    if (scale.factor == 1) return static_cast<T>(static_cast<int64_t>(x) / scale.divisor);
    const double y = static_cast<double>(x) / static_cast<double>(scale.divisor) * scale.factor;
    if (std::isnan(y)) return 0;
    if (y >= 0x1p63) return static_cast<T>(std::numeric_limits<int64_t>::max());
    if (y <= -0x1p63) return static_cast<T>(std::numeric_limits<int64_t>::min());
    return static_cast<T>(static_cast<int64_t>(y));
  }
}

// Equal bits, except that any NaN equals any NaN: which payload an addition of two NaNs keeps is
// the CPU's affair.
template <DType kType>
bool same_element(typename Element<kType>::Raw a, typename Element<kType>::Raw b) {
  using Raw = typename Element<kType>::Raw;
  if (std::memcmp(&a, &b, sizeof(Raw)) == 0) return true;
  if constexpr (std::is_floating_point_v<typename Element<kType>::Acc>)
    return std::isnan(Element<kType>::widen(a)) && std::isnan(Element<kType>::widen(b));
  return false;
}

// Values that meet the interesting cases: every exponent, zeros of both signs, infinities, NaN, the extremes.
template <DType kType>
std::vector<typename Element<kType>::Raw> random_elements(size_t count, std::mt19937_64& random) {
  using Raw = typename Element<kType>::Raw;
  std::vector<Raw> values(count);
  for (Raw& value : values) {
    const uint64_t bits = random();
    std::memcpy(&value, &bits, sizeof(Raw));
    if (kType == DType::kBool) value = static_cast<Raw>(bits & 1);
    if constexpr (std::is_floating_point_v<Raw>) {
      const uint64_t kind = random() % 16;
      if (kind == 0) value = std::numeric_limits<Raw>::quiet_NaN();
      if (kind == 1) value = -std::numeric_limits<Raw>::infinity();
      if (kind == 2) value = -Raw{0};
      if (kind == 3) value = Raw{0};
      if (kind > 5) value = static_cast<Raw>(std::ldexp(double(int32_t(bits)), int(random() % 24) - 40));
    }
  }
  return values;
}

}  // namespace rueda::kernels_test
