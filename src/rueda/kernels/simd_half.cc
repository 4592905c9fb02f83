// float16 and bfloat16: reductions in float32 with one rounding, and the conversions to and from float32.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rueda/kernels/simd_half.cc"
#include "rueda/kernels/targets.h"

#include "hwy/foreach_target.h"  // must come before highway.h

#include "rueda/kernels/reduce-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rueda::kernels {
namespace HWY_NAMESPACE {

template <class Type, class Operation>
void accumulate(const float* acc_in, const uint16_t* in, float* acc_out, size_t count) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  size_t at = 0;
  for (; at + lanes <= count; at += lanes)
    hn::StoreU(Operation::apply(d, hn::LoadU(d, acc_in + at), Type::load(d, in + at)), d, acc_out + at);
  if (at == count) return;
  HWY_ALIGN float acc[hn::MaxLanes(d)] = {};
  HWY_ALIGN uint16_t padded[hn::MaxLanes(d)] = {};
  std::memcpy(acc, acc_in + at, (count - at) * sizeof(float));
  std::memcpy(padded, in + at, (count - at) * sizeof(uint16_t));
  hn::StoreU(Operation::apply(d, hn::LoadU(d, acc), Type::load(d, padded)), d, acc);
  std::memcpy(acc_out + at, acc, (count - at) * sizeof(float));
}

template <class Type>
void widen(const uint16_t* in, float* acc, size_t count) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  size_t at = 0;
  for (; at + lanes <= count; at += lanes) hn::StoreU(Type::load(d, in + at), d, acc + at);
  if (at == count) return;
  HWY_ALIGN uint16_t padded[hn::MaxLanes(d)] = {};
  HWY_ALIGN float wide[hn::MaxLanes(d)];
  std::memcpy(padded, in + at, (count - at) * sizeof(uint16_t));
  hn::StoreU(Type::load(d, padded), d, wide);
  std::memcpy(acc + at, wide, (count - at) * sizeof(float));
}

template <class Type, bool kScaled>
void narrow_loop(const float* acc, uint16_t* out, size_t count, const FloatScale& scale) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  const Scaler<float> scaler(scale);
  size_t at = 0;
  for (; at + lanes <= count; at += lanes) {
    auto v = hn::LoadU(d, acc + at);
    if constexpr (kScaled) v = scaler.apply(v);
    Type::store(d, v, out + at);
  }
  if (at == count) return;
  HWY_ALIGN float padded[hn::MaxLanes(d)] = {};
  HWY_ALIGN uint16_t rounded[hn::MaxLanes(d)];
  std::memcpy(padded, acc + at, (count - at) * sizeof(float));
  auto v = hn::LoadU(d, padded);
  if constexpr (kScaled) v = scaler.apply(v);
  Type::store(d, v, rounded);
  std::memcpy(out + at, rounded, (count - at) * sizeof(uint16_t));
}

template <class Type>
void narrow(const float* acc, uint16_t* out, size_t count, const FloatScale* scale) {
  if (scale == nullptr) return narrow_loop<Type, false>(acc, out, count, {});
  narrow_loop<Type, true>(acc, out, count, *scale);
}

template <class Type>
void fill_type(Table& table, Half half) {
  const int index = static_cast<int>(half);
  fill_reductions<Type>(table.reduce_half[index]);
  table.accumulate[index][static_cast<int>(Op::kSum)] = &accumulate<Type, Sum>;
  table.accumulate[index][static_cast<int>(Op::kMin)] = &accumulate<Type, Min>;
  table.accumulate[index][static_cast<int>(Op::kMax)] = &accumulate<Type, Max>;
  table.accumulate[index][static_cast<int>(Op::kProduct)] = &accumulate<Type, Product>;
  table.widen[index] = &widen<Type>;
  table.narrow[index] = &narrow<Type>;
}

void fill_half(Table& table) {
  fill_type<Float16>(table, Half::kFloat16);
  fill_type<Bfloat16>(table, Half::kBfloat16);
}

}  // namespace HWY_NAMESPACE
}  // namespace rueda::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
RUEDA_KERNELS_DEFINE_FILL(fill_half)
#endif
