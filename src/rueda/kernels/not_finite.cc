#include "rueda/kernels/not_finite.h"

#include <algorithm>
#include <cstring>

namespace rueda::kernels {
namespace {

// A number is NaN or infinite if all bits of its exponent are set. Blocks are searched without branches, so
// that the compiler makes vector code; only the block with a finding is looked at again.
constexpr int64_t kBlock = 1024;

template <class Word>
int64_t first_with_exponent(const void* elements, int64_t count, Word exponent) {
  const auto* bytes = static_cast<const std::byte*>(elements);
  const auto is_found = [&](int64_t at) {
    Word word{};
    std::memcpy(&word, bytes + static_cast<size_t>(at) * sizeof(Word), sizeof(Word));
    return (word & exponent) == exponent;
  };
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t end = std::min(count, begin + kBlock);
    unsigned found = 0;
    for (int64_t at = begin; at < end; ++at) found |= static_cast<unsigned>(is_found(at));
    if (found == 0) continue;
    for (int64_t at = begin; at < end; ++at)
      if (is_found(at)) return at;
  }
  return -1;
}

}  // namespace

int64_t first_not_finite(DType dtype, const void* elements, int64_t count) {
  switch (dtype) {
    case DType::kFloat16:
      return first_with_exponent<uint16_t>(elements, count, 0x7C00);
    case DType::kBfloat16:
      return first_with_exponent<uint16_t>(elements, count, 0x7F80);
    case DType::kFloat32:
      return first_with_exponent<uint32_t>(elements, count, 0x7F80'0000);
    case DType::kFloat64:
      return first_with_exponent<uint64_t>(elements, count, 0x7FF0'0000'0000'0000);
    default:
      return -1;
  }
}

}  // namespace rueda::kernels
