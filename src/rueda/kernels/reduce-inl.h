// out[i] = scale(sources[0][i] op sources[1][i] op …): the loop behind every reduction, compiled once
// per instruction set like simd-inl.h. It reads every source once and writes out once. out may be one
// of the sources.
#if defined(RUEDA_KERNELS_REDUCE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RUEDA_KERNELS_REDUCE_INL_H_
#undef RUEDA_KERNELS_REDUCE_INL_H_
#else
#define RUEDA_KERNELS_REDUCE_INL_H_
#endif

#include "rueda/kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rueda::kernels {
namespace HWY_NAMESPACE {

// Reduces the vector at [at, at + lanes) over all sources.
template <class Type, class Operation, bool kScaled, class D>
hn::Vec<D> reduce_vector(D d, const void* const* sources, size_t source_count, size_t at,
                         const Scaler<typename Type::Lane>& scaler) {
  using T = typename Type::Element;
  auto v = Type::load(d, static_cast<const T*>(sources[0]) + at);
  for (size_t k = 1; k < source_count; ++k)
    v = Operation::apply(d, v, Type::load(d, static_cast<const T*>(sources[k]) + at));
  if constexpr (kScaled) v = scaler.apply(v);
  return v;
}

// Fewer elements than a vector has: they are padded, so that the same instructions give the same bits.
template <class Type, class Operation, bool kScaled, class D>
void reduce_tail(D d, const void* const* sources, size_t source_count, void* out, size_t at, size_t count,
                 const Scaler<typename Type::Lane>& scaler) {
  using T = typename Type::Element;
  HWY_ALIGN T padded[hn::MaxLanes(D())] = {};
  std::memcpy(padded, static_cast<const T*>(sources[0]) + at, count * sizeof(T));
  auto v = Type::load(d, padded);
  for (size_t k = 1; k < source_count; ++k) {
    std::memcpy(padded, static_cast<const T*>(sources[k]) + at, count * sizeof(T));
    v = Operation::apply(d, v, Type::load(d, padded));
  }
  if constexpr (kScaled) v = scaler.apply(v);
  Type::store(d, v, padded);
  std::memcpy(static_cast<T*>(out) + at, padded, count * sizeof(T));
}

template <class Type, class Operation, bool kScaled>
void reduce_loop(const void* const* sources, size_t source_count, void* out, size_t count,
                 const FloatScale& scale) {
  using T = typename Type::Element;
  const hn::ScalableTag<typename Type::Lane> d;
  const size_t lanes = hn::Lanes(d);
  const Scaler<typename Type::Lane> scaler(scale);
  size_t at = 0;
  // Four vectors per round are enough independent work to hide the latency of one operation.
  for (; at + 4 * lanes <= count; at += 4 * lanes) {
    const T* first = static_cast<const T*>(sources[0]) + at;
    auto v0 = Type::load(d, first);
    auto v1 = Type::load(d, first + lanes);
    auto v2 = Type::load(d, first + 2 * lanes);
    auto v3 = Type::load(d, first + 3 * lanes);
    for (size_t k = 1; k < source_count; ++k) {
      const T* next = static_cast<const T*>(sources[k]) + at;
      v0 = Operation::apply(d, v0, Type::load(d, next));
      v1 = Operation::apply(d, v1, Type::load(d, next + lanes));
      v2 = Operation::apply(d, v2, Type::load(d, next + 2 * lanes));
      v3 = Operation::apply(d, v3, Type::load(d, next + 3 * lanes));
    }
    if constexpr (kScaled) {
      v0 = scaler.apply(v0), v1 = scaler.apply(v1), v2 = scaler.apply(v2), v3 = scaler.apply(v3);
    }
    T* to = static_cast<T*>(out) + at;
    Type::store(d, v0, to);
    Type::store(d, v1, to + lanes);
    Type::store(d, v2, to + 2 * lanes);
    Type::store(d, v3, to + 3 * lanes);
  }
  for (; at + lanes <= count; at += lanes)
    Type::store(d, reduce_vector<Type, Operation, kScaled>(d, sources, source_count, at, scaler),
                static_cast<T*>(out) + at);
  if (at < count)
    reduce_tail<Type, Operation, kScaled>(d, sources, source_count, out, at, count - at, scaler);
}

template <class Type, class Operation>
void reduce_all(const void* const* sources, size_t source_count, void* out, size_t count,
                const FloatScale* scale) {
  if (scale == nullptr) return reduce_loop<Type, Operation, false>(sources, source_count, out, count, {});
  if constexpr (hwy::IsFloat<typename Type::Lane>())
    reduce_loop<Type, Operation, true>(sources, source_count, out, count, *scale);
}

template <class Type>
void fill_reductions(ReduceFn (&reductions)[kOpCount]) {
  reductions[static_cast<int>(Op::kSum)] = &reduce_all<Type, Sum>;
  reductions[static_cast<int>(Op::kMin)] = &reduce_all<Type, Min>;
  reductions[static_cast<int>(Op::kMax)] = &reduce_all<Type, Max>;
  reductions[static_cast<int>(Op::kProduct)] = &reduce_all<Type, Product>;
}

}  // namespace HWY_NAMESPACE
}  // namespace rueda::kernels
HWY_AFTER_NAMESPACE();

#endif  // RUEDA_KERNELS_REDUCE_INL_H_
