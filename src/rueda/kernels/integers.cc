#include "rueda/kernels/integers.h"

#include <cstdint>
#include <limits>
#include <type_traits>

#include "rueda/base/check.h"

namespace rueda::kernels {
namespace {

constexpr double kTwoTo63 = 9223372036854775808.0;

int64_t saturating_int64(double x) {
  if (x >= kTwoTo63) return std::numeric_limits<int64_t>::max();
  if (x < -kTwoTo63) return std::numeric_limits<int64_t>::min();
  return x == x ? static_cast<int64_t>(x) : 0;
}

template <class T, class Divisor>
void divide(const T* in, T* out, size_t count, Divisor divisor) {
  for (size_t i = 0; i < count; ++i) out[i] = static_cast<T>(static_cast<Divisor>(in[i]) / divisor);
}

template <class T>
void scale_type(const void* in_bytes, void* out_bytes, size_t count, const Scale& scale) {
  const T* in = static_cast<const T*>(in_bytes);
  T* out = static_cast<T*>(out_bytes);
  if (scale.factor == 1.0) {
    // A 32-bit division takes at most half the time of a 64-bit division, and in practice every divisor is a
    // number of ranks.
    if (sizeof(T) <= 4 && scale.divisor <= std::numeric_limits<int32_t>::max())
      return divide<T, int32_t>(in, out, count, static_cast<int32_t>(scale.divisor));
    return divide<T, int64_t>(in, out, count, scale.divisor);
  }
  const auto divisor = static_cast<double>(scale.divisor);
  for (size_t i = 0; i < count; ++i)
    out[i] = static_cast<T>(saturating_int64(static_cast<double>(in[i]) / divisor * scale.factor));
}

void scale_bool(const void* in_bytes, void* out_bytes, size_t count, const Scale& scale) {
  const auto* in = static_cast<const uint8_t*>(in_bytes);
  auto* out = static_cast<uint8_t*>(out_bytes);
  for (size_t i = 0; i < count; ++i) out[i] = in[i] != 0 && scale.factor != 0 ? 1 : 0;
}

}  // namespace

void scale_integers(DType dtype, const void* in, void* out, size_t count, const Scale& scale) {
  RUEDA_CHECK(scale.divisor >= 1, "a divisor is a number of ranks");
  switch (dtype) {
    case DType::kUint8:
      return scale_type<uint8_t>(in, out, count, scale);
    case DType::kInt8:
      return scale_type<int8_t>(in, out, count, scale);
    case DType::kUint16:
      return scale_type<uint16_t>(in, out, count, scale);
    case DType::kInt16:
      return scale_type<int16_t>(in, out, count, scale);
    case DType::kInt32:
      return scale_type<int32_t>(in, out, count, scale);
    case DType::kInt64:
      return scale_type<int64_t>(in, out, count, scale);
    case DType::kBool:
      return scale_bool(in, out, count, scale);
    case DType::kFloat16:
    case DType::kFloat32:
    case DType::kFloat64:
    case DType::kBfloat16:
      break;
  }
  RUEDA_CHECK(false, "scale_integers is for integers and bools");
}

}  // namespace rueda::kernels
