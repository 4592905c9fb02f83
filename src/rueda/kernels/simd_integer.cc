// Integers: reductions that wrap around.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rueda/kernels/simd_integer.cc"
#include "rueda/kernels/targets.h"

#include "hwy/foreach_target.h"  // must come before highway.h

#include "rueda/kernels/reduce-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rueda::kernels {
namespace HWY_NAMESPACE {

// Plain code: some targets cannot multiply vector lanes of 8 or 64 bits, and products of integers are rare.
// The arithmetic is unsigned and has at least 32 bits, because signed overflow is undefined and uint16 is
// promoted to int.
template <class T>
void reduce_product(const void* const* sources, size_t source_count, void* out, size_t count,
                    const FloatScale*) {
  for (size_t at = 0; at < count; ++at) {
    uint64_t product = static_cast<uint64_t>(static_cast<const T*>(sources[0])[at]);
    for (size_t k = 1; k < source_count; ++k)
      product *= static_cast<uint64_t>(static_cast<const T*>(sources[k])[at]);
    static_cast<T*>(out)[at] = static_cast<T>(product);
  }
}

template <class T>
void fill_type(Table& table, Integer integer) {
  ReduceFn(&reductions)[kOpCount] = table.reduce_integer[static_cast<int>(integer)];
  reductions[static_cast<int>(Op::kSum)] = &reduce_all<Plain<T>, Sum>;
  reductions[static_cast<int>(Op::kMin)] = &reduce_all<Plain<T>, Min>;
  reductions[static_cast<int>(Op::kMax)] = &reduce_all<Plain<T>, Max>;
  reductions[static_cast<int>(Op::kProduct)] = &reduce_product<T>;
}

void fill_integer(Table& table) {
  fill_type<uint8_t>(table, Integer::kUint8);
  fill_type<int8_t>(table, Integer::kInt8);
  fill_type<uint16_t>(table, Integer::kUint16);
  fill_type<int16_t>(table, Integer::kInt16);
  fill_type<int32_t>(table, Integer::kInt32);
  fill_type<int64_t>(table, Integer::kInt64);
}

}  // namespace HWY_NAMESPACE
}  // namespace rueda::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
RUEDA_KERNELS_DEFINE_FILL(fill_integer)
#endif
