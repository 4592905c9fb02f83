// float32 and float64: reductions, and the dot products and combination of Adasum.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rueda/kernels/simd_real.cc"
#include "rueda/kernels/targets.h"

#include "hwy/foreach_target.h"  // must come before highway.h

#include "rueda/kernels/reduce-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rueda::kernels {
namespace HWY_NAMESPACE {

// Eight lanes of float64, in as few registers as the target allows.
using D8 = hn::CappedTag<double, 8>;

template <class D>
hn::Vec<D> load_wide(D d, const float* from) {
  return hn::PromoteTo(d, hn::LoadU(hn::Rebind<float, D>(), from));
}
template <class D>
hn::Vec<D> load_wide(D d, const double* from) {
  return hn::LoadU(d, from);
}
template <class D>
void store_narrow(D, hn::Vec<D> v, float* to) {
  const hn::Rebind<float, D> narrow;
  hn::StoreU(hn::DemoteTo(narrow, v), narrow, to);
}
template <class D>
void store_narrow(D d, hn::Vec<D> v, double* to) {
  hn::StoreU(v, d, to);
}

// Eight elements of each vector are added to the three sums at a time; a group of eight fills kParts
// registers. Multiplication and addition are rounded separately: a fused instruction would give other bits
// than the targets that lack it.
constexpr size_t kParts = 8 / hn::MaxLanes(D8());

struct DotRegisters {
  hn::Vec<D8> ab[kParts], aa[kParts], bb[kParts];
};

template <class T>
HWY_INLINE void dot_eight(const T* a, const T* b, DotRegisters& sums) {
  const D8 d;
#pragma GCC unroll 8
  for (size_t part = 0; part < kParts; ++part) {
    const auto va = load_wide(d, a + part * hn::MaxLanes(d));
    const auto vb = load_wide(d, b + part * hn::MaxLanes(d));
    sums.ab[part] = hn::Add(sums.ab[part], hn::Mul(va, vb));
    sums.aa[part] = hn::Add(sums.aa[part], hn::Mul(va, va));
    sums.bb[part] = hn::Add(sums.bb[part], hn::Mul(vb, vb));
  }
}

template <class T>
void dot(const void* a_bytes, const void* b_bytes, size_t count, Dots& dots) {
  const D8 d;
  const T* a = static_cast<const T*>(a_bytes);
  const T* b = static_cast<const T*>(b_bytes);
  DotRegisters sums;
#pragma GCC unroll 8
  for (size_t part = 0; part < kParts; ++part) {
    sums.ab[part] = hn::LoadU(d, dots.ab + part * hn::MaxLanes(d));
    sums.aa[part] = hn::LoadU(d, dots.aa + part * hn::MaxLanes(d));
    sums.bb[part] = hn::LoadU(d, dots.bb + part * hn::MaxLanes(d));
  }
  size_t at = 0;
  for (; at + 8 <= count; at += 8) dot_eight(a + at, b + at, sums);
  if (at < count) {  // the zeros of the padding do not change a sum that began as +0
    T pad_a[8] = {}, pad_b[8] = {};
    std::memcpy(pad_a, a + at, (count - at) * sizeof(T));
    std::memcpy(pad_b, b + at, (count - at) * sizeof(T));
    dot_eight(pad_a, pad_b, sums);
  }
#pragma GCC unroll 8
  for (size_t part = 0; part < kParts; ++part) {
    hn::StoreU(sums.ab[part], d, dots.ab + part * hn::MaxLanes(d));
    hn::StoreU(sums.aa[part], d, dots.aa + part * hn::MaxLanes(d));
    hn::StoreU(sums.bb[part], d, dots.bb + part * hn::MaxLanes(d));
  }
}

template <class T>
void combine_eight(double a_factor, const T* a, double b_factor, const T* b, T* out) {
  const D8 d;
  for (size_t lane = 0; lane < 8; lane += hn::Lanes(d)) {
    const auto va = hn::Mul(hn::Set(d, a_factor), load_wide(d, a + lane));
    const auto vb = hn::Mul(hn::Set(d, b_factor), load_wide(d, b + lane));
    store_narrow(d, hn::Add(va, vb), out + lane);
  }
}

template <class T>
void combine(double a_factor, const void* a_bytes, double b_factor, const void* b_bytes, void* out_bytes,
             size_t count) {
  const T* a = static_cast<const T*>(a_bytes);
  const T* b = static_cast<const T*>(b_bytes);
  T* out = static_cast<T*>(out_bytes);
  size_t at = 0;
  for (; at + 8 <= count; at += 8) combine_eight(a_factor, a + at, b_factor, b + at, out + at);
  if (at < count) {
    T pad_a[8] = {}, pad_b[8] = {};
    std::memcpy(pad_a, a + at, (count - at) * sizeof(T));
    std::memcpy(pad_b, b + at, (count - at) * sizeof(T));
    combine_eight(a_factor, pad_a, b_factor, pad_b, pad_a);
    std::memcpy(out + at, pad_a, (count - at) * sizeof(T));
  }
}

void fill_real(Table& table) {
  table.name = hwy::TargetName(HWY_TARGET);
  fill_reductions<Plain<float>>(table.reduce_real[static_cast<int>(Real::kFloat32)]);
  fill_reductions<Plain<double>>(table.reduce_real[static_cast<int>(Real::kFloat64)]);
  table.dot[static_cast<int>(Real::kFloat32)] = &dot<float>;
  table.dot[static_cast<int>(Real::kFloat64)] = &dot<double>;
  table.combine[static_cast<int>(Real::kFloat32)] = &combine<float>;
  table.combine[static_cast<int>(Real::kFloat64)] = &combine<double>;
}

}  // namespace HWY_NAMESPACE
}  // namespace rueda::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
RUEDA_KERNELS_DEFINE_FILL(fill_real)
#endif
