// Blocks of float32 as bytes for the wire (float16, bfloat16, int8 with a scale), and the errors that this
// leaves behind.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rueda/kernels/simd_wire.cc"
#include "rueda/kernels/targets.h"

#include "hwy/foreach_target.h"  // must come before highway.h

#include "rueda/base/types.h"
#include "rueda/kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rueda::kernels {
namespace HWY_NAMESPACE {

inline constexpr auto kBlockElements = static_cast<size_t>(kWireBlock);
inline constexpr size_t kScaleBytes = sizeof(float);
inline constexpr float kMostQuanta = 127;
// Between these, neither the scale of a block nor its reciprocal leaves the normal numbers.
inline constexpr float kLeastScaled = 1e-30F, kMostScaled = 3.4e38F;
inline constexpr uint32_t kInfinityBits = 0x7F800000, kNanBits = 0x7FC00000, kAbsBits = 0x7FFFFFFF;

// The bits of |v|. As integers they are in the order of the numbers, and infinity and NaN come last.
template <class D>
auto magnitude(D d, hn::Vec<D> v) {
  const hn::Rebind<int32_t, D> di;
  (void)d;
  return hn::And(hn::BitCast(di, v), hn::Set(di, static_cast<int32_t>(kAbsBits)));
}

template <class D>
uint32_t largest_of(D d, hn::Vec<hn::Rebind<int32_t, D>> bits) {
  const hn::Rebind<int32_t, D> di;
  (void)d;
  return static_cast<uint32_t>(hn::GetLane(hn::MaxOfLanes(di, bits)));
}

inline float float_of(uint32_t bits) {
  float value = 0;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// v = in + error_in of one block; returns the bits of the largest |v|.
inline uint32_t add_error(const float* in, const float* error_in, float* values) {
  const hn::ScalableTag<float> d;
  const hn::Rebind<int32_t, decltype(d)> di;
  auto largest = hn::Zero(di);
  for (size_t at = 0; at < kBlockElements; at += hn::Lanes(d)) {
    auto v = hn::LoadU(d, in + at);
    if (error_in != nullptr) v = hn::Add(v, hn::LoadU(d, error_in + at));
    hn::Store(v, d, values + at);
    largest = hn::Max(largest, magnitude(d, v));
  }
  return largest_of(d, largest);
}

inline void fill_float(float* out, uint32_t bits) {
  if (out == nullptr) return;
  const hn::ScalableTag<float> d;
  for (size_t at = 0; at < kBlockElements; at += hn::Lanes(d))
    hn::StoreU(hn::Set(d, float_of(bits)), d, out + at);
}

inline void encode_int8_block(const float* values, float scale, float reciprocal, float* error_out,
                              std::byte* out) {
  const hn::ScalableTag<float> d;
  const hn::Rebind<int8_t, decltype(d)> d8;
  std::memcpy(out, &scale, kScaleBytes);
  auto* quanta = reinterpret_cast<int8_t*>(out + kScaleBytes);
  for (size_t at = 0; at < kBlockElements; at += hn::Lanes(d)) {
    const auto v = hn::Load(d, values + at);
    const auto rounded = hn::NearestInt(hn::Mul(v, hn::Set(d, reciprocal)));
    hn::StoreU(hn::DemoteTo(d8, rounded), d8, quanta + at);
    if (error_out == nullptr) continue;
    hn::StoreU(hn::Sub(v, hn::Mul(hn::ConvertTo(d, rounded), hn::Set(d, scale))), d, error_out + at);
  }
}

void encode_int8(const float* in, const float* error_in, float* error_out, std::byte* out, size_t blocks) {
  HWY_ALIGN float values[kBlockElements];
  constexpr size_t kBytes = kBlockElements + kScaleBytes;
  for (size_t block = 0; block < blocks; ++block, out += kBytes) {
    const size_t at = block * kBlockElements;
    float* error = error_out == nullptr ? nullptr : error_out + at;
    const uint32_t bits = add_error(in + at, error_in == nullptr ? nullptr : error_in + at, values);
    const float largest = float_of(bits);
    if (bits >= kInfinityBits || largest > kMostScaled) {
      std::memcpy(out, &kNanBits, kScaleBytes);
      std::memset(out + kScaleBytes, 0, kBlockElements);
      fill_float(error, 0);
    } else if (largest < kLeastScaled) {
      std::memset(out, 0, kBytes);
      if (error != nullptr) std::memcpy(error, values, sizeof(values));
    } else {
      encode_int8_block(values, largest / kMostQuanta, kMostQuanta / largest, error, out);
    }
  }
}

template <class D>
hn::Vec<D> add_to(D d, const float* acc_in, size_t at, hn::Vec<D> v) {
  return acc_in == nullptr ? v : hn::Add(hn::LoadU(d, acc_in + at), v);
}

// The last lanes of a tensor that does not end with a register.
template <class D>
void store_tail(D d, const float* acc_in, float* out, size_t count, hn::Vec<D> v) {
  HWY_ALIGN float wide[hn::MaxLanes(d)] = {};
  if (acc_in != nullptr) std::memcpy(wide, acc_in, count * sizeof(float));
  hn::Store(add_to(d, acc_in == nullptr ? nullptr : wide, 0, v), d, wide);
  std::memcpy(out, wide, count * sizeof(float));
}

void decode_int8(const std::byte* in, const float* acc_in, float* out, size_t count) {
  const hn::ScalableTag<float> d;
  const hn::Rebind<int8_t, decltype(d)> d8;
  const hn::Rebind<int32_t, decltype(d)> di;
  constexpr size_t kBytes = kBlockElements + kScaleBytes;
  for (size_t begin = 0; begin < count; begin += kBlockElements, in += kBytes) {
    float scale = 0;
    std::memcpy(&scale, in, kScaleBytes);
    const auto* quanta = reinterpret_cast<const int8_t*>(in + kScaleBytes);
    const size_t size = HWY_MIN(kBlockElements, count - begin);
    const float* acc = acc_in == nullptr ? nullptr : acc_in + begin;
    for (size_t at = 0; at < size; at += hn::Lanes(d)) {
      const auto q = hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadU(d8, quanta + at)));
      const auto v = hn::Mul(q, hn::Set(d, scale));
      if (at + hn::Lanes(d) <= size)
        hn::StoreU(add_to(d, acc, at, v), d, out + begin + at);
      else
        store_tail(d, acc == nullptr ? nullptr : acc + at, out + begin + at, size - at, v);
    }
  }
}

template <class Type>
void encode_half(const float* in, const float* error_in, float* error_out, std::byte* out, size_t blocks) {
  const hn::ScalableTag<float> d;
  const hn::Rebind<int32_t, decltype(d)> di;
  HWY_ALIGN uint16_t nan[hn::MaxLanes(d)];
  Type::store(d, hn::Set(d, float_of(kNanBits)), nan);
  for (size_t block = 0; block < blocks; ++block) {
    auto* to = reinterpret_cast<uint16_t*>(out) + block * kBlockElements;
    const size_t begin = block * kBlockElements;
    auto largest = hn::Zero(di);
    for (size_t at = 0; at < kBlockElements; at += hn::Lanes(d)) {
      auto v = hn::LoadU(d, in + begin + at);
      if (error_in != nullptr) v = hn::Add(v, hn::LoadU(d, error_in + begin + at));
      Type::store(d, v, to + at);
      const auto kept = Type::load(d, to + at);
      largest = hn::Max(largest, magnitude(d, kept));
      if (error_out != nullptr) hn::StoreU(hn::Sub(v, kept), d, error_out + begin + at);
    }
    if (largest_of(d, largest) < kInfinityBits) continue;
    for (size_t at = 0; at < kBlockElements; ++at) to[at] = nan[0];
    fill_float(error_out == nullptr ? nullptr : error_out + begin, 0);
  }
}

template <class Type>
void decode_half(const std::byte* in, const float* acc_in, float* out, size_t count) {
  const hn::ScalableTag<float> d;
  const auto* from = reinterpret_cast<const uint16_t*>(in);
  size_t at = 0;
  for (; at + hn::Lanes(d) <= count; at += hn::Lanes(d))
    hn::StoreU(add_to(d, acc_in, at, Type::load(d, from + at)), d, out + at);
  if (at < count)  // the block goes on beyond its last element
    store_tail(d, acc_in == nullptr ? nullptr : acc_in + at, out + at, count - at, Type::load(d, from + at));
}

void fill_wire(Table& table) {
  table.encode_half[static_cast<int>(Half::kFloat16)] = &encode_half<Float16>;
  table.encode_half[static_cast<int>(Half::kBfloat16)] = &encode_half<Bfloat16>;
  table.decode_half[static_cast<int>(Half::kFloat16)] = &decode_half<Float16>;
  table.decode_half[static_cast<int>(Half::kBfloat16)] = &decode_half<Bfloat16>;
  table.encode_int8 = &encode_int8;
  table.decode_int8 = &decode_int8;
}

}  // namespace HWY_NAMESPACE
}  // namespace rueda::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
RUEDA_KERNELS_DEFINE_FILL(fill_wire)
#endif
