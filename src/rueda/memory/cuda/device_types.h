// The element types of the kernels: how they are widened for arithmetic, and rounded.
#pragma once

#include "rueda/memory/cuda/device_table.h"

namespace rueda::cuda::device {

RUEDA_DEVICE float float_of(U32 bits) { return __builtin_bit_cast(float, bits); }
RUEDA_DEVICE U32 bits_of(float value) { return __builtin_bit_cast(U32, value); }

template <class T>
struct Plain {
  using Raw = T;
  using Wide = T;
  RUEDA_DEVICE T widen(T raw) { return raw; }
  RUEDA_DEVICE T narrow(T wide) { return wide; }
};

struct Bfloat16 {
  using Raw = U16;
  using Wide = float;
  RUEDA_DEVICE float widen(U16 raw) { return float_of(static_cast<U32>(raw) << 16); }
  RUEDA_DEVICE U16 narrow(float wide) {
    const U32 bits = bits_of(wide), rounded = bits + 0x7FFFu + (bits >> 16 & 1u);
    const bool is_nan = (bits & 0x7FFFFFFFu) > 0x7F800000u;
    return static_cast<U16>((is_nan ? bits | 0x400000u : rounded) >> 16);  // NaN stays NaN
  }
};

struct Float16 {
  using Raw = U16;
  using Wide = float;
#if defined(__CUDA__)
  RUEDA_DEVICE float widen(U16 raw) {
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(raw));
    return wide;
  }
  RUEDA_DEVICE U16 narrow(float wide) {
    U16 raw;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(raw) : "f"(wide));
    return raw;
  }
#else
  RUEDA_DEVICE float widen(U16 raw) {
    const U32 sign = static_cast<U32>(raw & 0x8000u) << 16, exponent = raw >> 10 & 31u,
              mantissa = raw & 1023u;
    if (exponent == 31) return float_of(sign | 0x7F800000u | mantissa << 13);
    if (exponent != 0) return float_of(sign | (exponent + 112) << 23 | mantissa << 13);
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;  // exact
    return float_of(sign | bits_of(magnitude));
  }
  RUEDA_DEVICE U16 narrow(float wide) {
    const U32 bits = bits_of(wide), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7FFFFFFFu;
    if (magnitude > 0x7F800000u) return static_cast<U16>(sign | 0x7E00u | (magnitude >> 13 & 0x3FFu));
    if (magnitude >= 0x47800000u) return static_cast<U16>(sign | 0x7C00u);  // 65536 and more
    if (magnitude < 0x38800000u) {  // below the smallest normal number: in units of 2^-24, rounded by the sum
      const float rounded = float_of(magnitude) + 0.5f;  // whose last place is 2^-24
      return static_cast<U16>(sign | (bits_of(rounded) - bits_of(0.5f)));
    }
    const U32 round = magnitude + 0xFFFu + (magnitude >> 13 & 1u);
    return static_cast<U16>(sign | (round - (112u << 23)) >> 13);
  }
#endif
};

// Bool: any value but 0 is true.
struct Bool : Plain<U8> {};

}  // namespace rueda::cuda::device
