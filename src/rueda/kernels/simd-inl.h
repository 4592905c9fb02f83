// The vocabulary of the vector loops: how an element type is loaded into lanes and stored back, and what an
// op does to two vectors. Compiled once per instruction set (Highway's foreach_target), hence the unusual
// guard. Highway 1.0.3 reference: https://github.com/google/highway/blob/1.0.3/g3doc/quick_reference.md
#if defined(RUEDA_KERNELS_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RUEDA_KERNELS_SIMD_INL_H_
#undef RUEDA_KERNELS_SIMD_INL_H_
#else
#define RUEDA_KERNELS_SIMD_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "rueda/kernels/table.h"

HWY_BEFORE_NAMESPACE();
namespace rueda::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// ---- element types ----

// The lanes hold the elements themselves.
template <class T>
struct Plain {
  using Element = T;
  using Lane = T;
  template <class D>
  static hn::Vec<D> load(D d, const T* from) {
    return hn::LoadU(d, from);
  }
  template <class D>
  static void store(D d, hn::Vec<D> v, T* to) {
    hn::StoreU(v, d, to);
  }
};

// bfloat16 in memory, float32 in the lanes. Rounds to nearest even. A NaN stays a NaN and becomes quiet.
struct Bfloat16 {
  using Element = uint16_t;
  using Lane = float;
  template <class D>
  static hn::Vec<D> load(D d, const uint16_t* from) {
    const hn::Rebind<uint16_t, D> d16;
    const hn::Rebind<uint32_t, D> d32;
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, hn::LoadU(d16, from))));
  }
  template <class D>
  static void store(D d, hn::Vec<D> v, uint16_t* to) {
    const hn::Rebind<uint16_t, D> d16;
    const hn::Rebind<int32_t, D> di;
    const hn::Rebind<uint32_t, D> du;
    const auto bits = hn::BitCast(du, v);
    const auto is_odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
    const auto rounded = hn::Add(bits, hn::Add(is_odd, hn::Set(du, 0x7FFF)));
    const auto quiet = hn::Or(bits, hn::Set(du, 0x400000));
    const auto chosen = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), quiet, rounded);
    hn::StoreU(hn::DemoteTo(d16, hn::BitCast(di, hn::ShiftRight<16>(chosen))), d16, to);
    (void)d;
  }
};

// float16 in memory, float32 in the lanes. Targets that have conversion instructions (F16C) use
// them. On others integer arithmetic gives the same bits, because Highway's own fallback does not
// round to nearest even.
struct Float16 {
  using Element = uint16_t;
  using Lane = float;
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  template <class D>
  static hn::Vec<D> load(D d, const uint16_t* from) {
    const hn::Rebind<uint16_t, D> d16;
    const hn::Rebind<hwy::float16_t, D> df16;
    return hn::PromoteTo(d, hn::BitCast(df16, hn::LoadU(d16, from)));
  }
  template <class D>
  static void store(D, hn::Vec<D> v, uint16_t* to) {
    const hn::Rebind<uint16_t, D> d16;
    const hn::Rebind<hwy::float16_t, D> df16;
    hn::StoreU(hn::BitCast(d16, hn::DemoteTo(df16, v)), d16, to);
  }
#else
  template <class D>
  static hn::Vec<D> load(D d, const uint16_t* from) {
    const hn::Rebind<uint16_t, D> d16;
    const hn::Rebind<uint32_t, D> du;
    const auto bits = hn::PromoteTo(du, hn::LoadU(d16, from));
    const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(du, 0x8000)));
    const auto magnitude = hn::ShiftLeft<13>(hn::And(bits, hn::Set(du, 0x7FFF)));
    // Multiplying by 2^112 moves the bias of the exponent from 15 to 127 and normalises subnormals, exactly.
    const auto finite =
        hn::BitCast(du, hn::Mul(hn::BitCast(d, magnitude), hn::BitCast(d, hn::Set(du, (127u + 112u) << 23))));
    const auto special = hn::Or(magnitude, hn::Set(du, 0x7F800000));
    const auto has_mantissa = hn::Gt(signed_of(d, magnitude), signed_of(d, hn::Set(du, 0x0F800000)));
    const auto quiet =
        hn::Or(special, hn::IfThenElseZero(hn::RebindMask(du, has_mantissa), hn::Set(du, 0x400000)));
    const auto is_special = hn::Gt(signed_of(d, magnitude), signed_of(d, hn::Set(du, 0x0F7FFFFF)));
    return hn::BitCast(d, hn::Or(sign, hn::IfThenElse(hn::RebindMask(du, is_special), quiet, finite)));
  }
  template <class D>
  static void store(D d, hn::Vec<D> v, uint16_t* to) {
    const hn::Rebind<uint16_t, D> d16;
    const hn::Rebind<int32_t, D> di;
    const hn::Rebind<uint32_t, D> du;
    const auto bits = hn::BitCast(du, v);
    const auto magnitude = hn::And(bits, hn::Set(du, 0x7FFFFFFF));
    const auto as_int = signed_of(d, magnitude);
    // Normal numbers: change the bias, add just under half of the lowest bit that is kept (half if that bit
    // is odd), shift.
    const auto is_odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 1));
    const auto rebias = hn::Set(du, 0xFFFu - (112u << 23));
    const auto normal = hn::ShiftRight<13>(hn::Add(magnitude, hn::Add(is_odd, rebias)));
    // Subnormals: adding 0.5 aligns the lowest bit of a half with the lowest bit of a float, so
    // the addition rounds.
    const auto half = hn::Set(du, 0x3F000000);
    const auto tiny =
        hn::Sub(hn::BitCast(du, hn::Add(hn::BitCast(d, magnitude), hn::BitCast(d, half))), half);
    const auto is_tiny = hn::RebindMask(du, hn::Lt(as_int, hn::Set(di, 0x38800000)));
    const auto is_huge = hn::RebindMask(du, hn::Gt(as_int, hn::Set(di, 0x477FFFFF)));
    const auto nan = hn::Or(hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 0x3FF)), hn::Set(du, 0x7E00));
    const auto huge = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), nan, hn::Set(du, 0x7C00));
    const auto chosen = hn::IfThenElse(is_huge, huge, hn::IfThenElse(is_tiny, tiny, normal));
    const auto sign = hn::ShiftRight<16>(hn::And(bits, hn::Set(du, 0x80000000u)));
    hn::StoreU(hn::DemoteTo(d16, hn::BitCast(di, hn::Or(chosen, sign))), d16, to);
  }

 private:
  template <class D, class V>
  static auto signed_of(D, V v) {
    return hn::BitCast(hn::Rebind<int32_t, D>(), v);
  }
#endif
};

// ---- operations on vectors ----

struct Sum {
  template <class D>
  static hn::Vec<D> apply(D, hn::Vec<D> a, hn::Vec<D> b) {
    return hn::Add(a, b);
  }
};
struct Product {
  template <class D>
  static hn::Vec<D> apply(D, hn::Vec<D> a, hn::Vec<D> b) {
    return hn::Mul(a, b);
  }
};
// Min and Max compare instead of using the CPU's instruction, which drops a NaN in the first operand and
// treats the sign of zero differently on each architecture. The result of Min is a if a is smaller or NaN,
// and otherwise b, which may be NaN.
struct Min {
  template <class D>
  static hn::Vec<D> apply(D, hn::Vec<D> a, hn::Vec<D> b) {
    if constexpr (hwy::IsFloat<hn::TFromD<D>>()) {
      return hn::IfThenElse(hn::Or(hn::Lt(a, b), hn::IsNaN(a)), a, b);
    } else {
      return hn::Min(a, b);
    }
  }
};
struct Max {
  template <class D>
  static hn::Vec<D> apply(D, hn::Vec<D> a, hn::Vec<D> b) {
    if constexpr (hwy::IsFloat<hn::TFromD<D>>()) {
      return hn::IfThenElse(hn::Or(hn::Gt(a, b), hn::IsNaN(a)), a, b);
    } else {
      return hn::Max(a, b);
    }
  }
};

// First the division, then the factor (types.h, Scale). Both are constants of the loop, in the type
// of the lanes.
template <class Lane>
struct Scaler {
  using V = hn::Vec<hn::ScalableTag<Lane>>;
  V divisor, factor;
  explicit Scaler(const FloatScale& scale)
      : divisor(hn::Set(hn::ScalableTag<Lane>(), static_cast<Lane>(scale.divisor))),
        factor(hn::Set(hn::ScalableTag<Lane>(), static_cast<Lane>(scale.factor))) {}
  V apply(V v) const { return hn::Mul(hn::Div(v, divisor), factor); }
};

}  // namespace HWY_NAMESPACE
}  // namespace rueda::kernels
HWY_AFTER_NAMESPACE();

#endif  // RUEDA_KERNELS_SIMD_INL_H_
