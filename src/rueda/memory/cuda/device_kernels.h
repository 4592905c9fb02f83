// The bodies of the kernels, as functions over the place of one thread. kernels.cu makes kernels of them for
// devices; the tests compile the same bodies for the host, where each thread is a call. No header of CUDA and
// none of the C++ library that a device lacks.
//
// The arithmetic follows kernels/kernels.h: 16-bit floats are computed in float32 and rounded once, to the
// nearest, ties to even; integers wrap around; there is no contraction.
#pragma once

#include "rueda/memory/cuda/device_adasum.h"
#include "rueda/memory/cuda/device_groups.h"
#include "rueda/memory/cuda/device_table.h"
#include "rueda/memory/cuda/device_types.h"

namespace rueda::cuda::device {

// ---- packing ----

constexpr U64 kChunkBytes = 16 << 10;  // what one block copies at a time: 64 bytes for each of 256 threads

template <class Word>
RUEDA_DEVICE void copy_words(ThreadIndex at, const U8* __restrict from, U8* __restrict to, U64 bytes) {
  const U64 words = bytes / sizeof(Word);
  const Word* in = reinterpret_cast<const Word*>(from);
  Word* out = reinterpret_cast<Word*>(to);
  U64 i = at.thread;
  RUEDA_ROLLED
  for (; i + 3 * at.threads < words; i += 4 * at.threads) {  // four loads are under way at once
    const Word a = in[i], b = in[i + at.threads], c = in[i + 2 * at.threads], d = in[i + 3 * at.threads];
    out[i] = a, out[i + at.threads] = b, out[i + 2 * at.threads] = c, out[i + 3 * at.threads] = d;
  }
  RUEDA_ROLLED
  for (; i < words; i += at.threads) out[i] = in[i];
  RUEDA_ROLLED
  for (i = words * sizeof(Word) + at.thread; i < bytes; i += at.threads) to[i] = from[i];
}

// All threads of one block together: with the widest words to which both addresses are aligned.
RUEDA_DEVICE void copy_bytes(ThreadIndex at, const U8* from, U8* to, U64 bytes) {
  const U64 alignment = (reinterpret_cast<U64>(from) | reinterpret_cast<U64>(to)) & 15;
  if (alignment == 0) return copy_words<Line>(at, from, to, bytes);
  if ((alignment & 7) == 0) return copy_words<U64>(at, from, to, bytes);
  if ((alignment & 3) == 0) return copy_words<U32>(at, from, to, bytes);
  if ((alignment & 1) == 0) return copy_words<U16>(at, from, to, bytes);
  copy_words<U8>(at, from, to, bytes);
}

// move(from, to, bytes): all threads of one block together, of one chunk.
template <bool kIsPack, class Move>
RUEDA_DEVICE void move_chunks(ThreadIndex at, const TableEntry* table, U32 entries, U64 chunks, U8* buffer,
                              Move move) {
  for (U64 chunk = at.block; chunk < chunks; chunk += at.blocks) {
    const TableEntry& entry = entry_of(table, entries, chunk);
    const U64 begin = as_it_is((chunk - entry.first_chunk) * kChunkBytes);
    const U64 left = entry.bytes - begin;
    U8* const tensor = reinterpret_cast<U8*>(entry.tensor) + begin;
    U8* const packed = buffer + entry.offset + begin;
    move(kIsPack ? tensor : packed, kIsPack ? packed : tensor, left < kChunkBytes ? left : kChunkBytes);
  }
}

template <bool kIsPack>
RUEDA_DEVICE void move_runs(ThreadIndex at, const TableEntry* table, U32 entries, U64 chunks, U8* buffer) {
  move_chunks<kIsPack>(at, table, entries, chunks, buffer,
                       [=](const U8* from, U8* to, U64 bytes) { copy_bytes(at, from, to, bytes); });
}

// ---- arithmetic ----

// y = x / divisor * factor (base/types.h, Scale).
struct ScaleBy {
  double factor;
  I64 divisor;
};

// The same for floats, made once for all elements. A division costs more than the memory of 16-bit floats
// does; by a power of two, multiplication gives the same bits.
template <class Float>
struct FloatScale {
  Float divisor, factor;
  Float inverse;  // of a divisor that is a power of two; otherwise 0
};

template <class Wide>
RUEDA_DEVICE ScaleBy prepared(ScaleBy by, Wide /*type*/) {
  return by;
}
template <class Float>
RUEDA_DEVICE FloatScale<Float> float_scale(ScaleBy by) {
  const auto divisor = static_cast<Float>(by.divisor);
  const bool is_power = by.divisor > 0 && (by.divisor & (by.divisor - 1)) == 0;
  return {.divisor = divisor, .factor = static_cast<Float>(by.factor), .inverse = is_power ? 1 / divisor : 0};
}
RUEDA_DEVICE FloatScale<float> prepared(ScaleBy by, float /*type*/) { return float_scale<float>(by); }
RUEDA_DEVICE FloatScale<double> prepared(ScaleBy by, double /*type*/) { return float_scale<double>(by); }

RUEDA_DEVICE I64 saturating(double x) {
  if (x >= 9223372036854775808.0) return 0x7FFFFFFFFFFFFFFFLL;
  if (x < -9223372036854775808.0) return -0x7FFFFFFFFFFFFFFFLL - 1;
  return x == x ? static_cast<I64>(x) : 0;
}

template <class Float>
RUEDA_DEVICE Float scaled(Float x, FloatScale<Float> by) {
  return (by.inverse != 0 ? x * by.inverse : x / by.divisor) * by.factor;
}
// By a power of two alone: no branch between the elements of a group.
template <class Float>
struct InverseScale {
  Float inverse, factor;
};
template <class Float>
RUEDA_DEVICE Float scaled(Float x, InverseScale<Float> by) {
  return x * by.inverse * by.factor;
}

template <class T>
RUEDA_DEVICE T scaled(T x, ScaleBy by) {
  if (by.factor == 1.0) return static_cast<T>(static_cast<I64>(x) / by.divisor);
  return static_cast<T>(saturating(static_cast<double>(x) / static_cast<double>(by.divisor) * by.factor));
}

template <class Type>
struct Arithmetic {
  template <class Scale>
  RUEDA_DEVICE typename Type::Wide scale(typename Type::Wide x, Scale by) {
    return scaled(x, by);
  }
  RUEDA_DEVICE typename Type::Wide add(typename Type::Wide a, typename Type::Wide b) {
    return static_cast<typename Type::Wide>(a + b);
  }
};
template <>
struct Arithmetic<Plain<int>> {
  RUEDA_DEVICE int scale(int x, ScaleBy by) { return scaled(x, by); }
  RUEDA_DEVICE int add(int a, int b) { return static_cast<int>(static_cast<U32>(a) + static_cast<U32>(b)); }
};
template <>
struct Arithmetic<Plain<I64>> {
  RUEDA_DEVICE I64 scale(I64 x, ScaleBy by) { return scaled(x, by); }
  RUEDA_DEVICE I64 add(I64 a, I64 b) { return static_cast<I64>(static_cast<U64>(a) + static_cast<U64>(b)); }
};
template <>
struct Arithmetic<Bool> {
  RUEDA_DEVICE U8 scale(U8 x, ScaleBy by) { return x != 0 && by.factor != 0 ? 1 : 0; }
  RUEDA_DEVICE U8 add(U8 a, U8 b) { return a != 0 || b != 0 ? 1 : 0; }
};

template <class Type, class Scale>
RUEDA_DEVICE void scale_elements_by(ThreadShare share, const void* from, void* to, U64 count, Scale by) {
  using Raw = typename Type::Raw;
  const Raw* in = static_cast<const Raw*>(from);
  Raw* out = static_cast<Raw*>(to);
  in_groups<kGroup<Raw>>(share, head_of(count, in, out), count, [=](U64 i, auto times) {
    auto group = load<decltype(times)::kCount>(in + i);
    RUEDA_UNROLL
    for (Raw& x : group.of) x = Type::narrow(Arithmetic<Type>::scale(Type::widen(x), by));
    store(group, out + i);
  });
}

template <class Type, class Float>
RUEDA_DEVICE void scale_prepared(ThreadShare share, const void* from, void* to, U64 count,
                                 FloatScale<Float> by) {
  if (by.inverse == 0) return scale_elements_by<Type>(share, from, to, count, by);
  scale_elements_by<Type>(share, from, to, count, InverseScale<Float>{by.inverse, by.factor});
}
template <class Type>
RUEDA_DEVICE void scale_prepared(ThreadShare share, const void* from, void* to, U64 count, ScaleBy by) {
  scale_elements_by<Type>(share, from, to, count, by);
}
template <class Type>
RUEDA_DEVICE void scale_elements(ThreadShare share, const void* from, void* to, U64 count, ScaleBy by) {
  scale_prepared<Type>(share, from, to, count, prepared(by, typename Type::Wide{}));
}

// Packs, or unpacks, runs of elements and scales them on the way.
template <class Type, bool kIsPack>
RUEDA_DEVICE void move_scaled(ThreadIndex at, const TableEntry* table, U32 entries, U64 chunks, U8* buffer,
                              ScaleBy by) {
  move_chunks<kIsPack>(at, table, entries, chunks, buffer, [=](const U8* from, U8* to, U64 bytes) {
    scale_elements<Type>({at.thread, at.threads}, from, to, bytes / sizeof(typename Type::Raw), by);
  });
}

template <class Type>
RUEDA_DEVICE void add_elements(ThreadIndex at, const void* one, const void* other, void* to, U64 count) {
  using Raw = typename Type::Raw;
  const Raw* a = static_cast<const Raw*>(one);
  const Raw* b = static_cast<const Raw*>(other);
  Raw* out = static_cast<Raw*>(to);
  in_groups<kGroup<Raw>>(share_of_grid(at), head_of(count, a, b, out), count, [=](U64 i, auto times) {
    constexpr U32 kCount = decltype(times)::kCount;
    auto sums = load<kCount>(a + i);
    const auto others = load<kCount>(b + i);
    RUEDA_UNROLL
    for (U32 k = 0; k < kCount; ++k)
      sums.of[k] = Type::narrow(Arithmetic<Type>::add(Type::widen(sums.of[k]), Type::widen(others.of[k])));
    store(sums, out + i);
  });
}

constexpr U32 kMostSources = 16;

// The inputs of a sum, in the order in which they are added. Null: a rank without a tensor, which adds zero.
struct Sources {
  const void* of[kMostSources];
  U32 count;
};

// Elements of one source, widened; where there is something to prescale, scaled and rounded before.
template <class Type, U32 kCount, class Scale>
RUEDA_DEVICE auto source_elements(const void* source, U64 i, Scale prescale, bool is_prescaled) {
  using Raw = typename Type::Raw;
  Group<Raw, kCount> group = {};
  if (source != nullptr) group = load<kCount>(static_cast<const Raw*>(source) + i);
  Group<typename Type::Wide, kCount> wide;
  RUEDA_UNROLL
  for (U32 k = 0; k < kCount; ++k) {
    wide.of[k] = Type::widen(group.of[k]);
    if (is_prescaled && source != nullptr)
      wide.of[k] = Type::widen(Type::narrow(Arithmetic<Type>::scale(wide.of[k], prescale)));
  }
  return wide;
}

template <class Raw>
RUEDA_DEVICE U64 head_of_sum(U64 count, const Sources& sources, const Raw* out) {
  const U64 head = head_of(count, out);
  for (U32 k = 0; k < sources.count; ++k)
    if (sources.of[k] != nullptr && !is_at_line(static_cast<const Raw*>(sources.of[k]) + head)) return count;
  return head;
}

// `to` may be one of the sources.
template <class Type>
RUEDA_DEVICE void sum_elements(ThreadIndex at, const Sources& sources, void* to, U64 count, double prescale,
                               ScaleBy finish) {
  using Raw = typename Type::Raw;
  Raw* out = static_cast<Raw*>(to);
  const auto before = prepared(ScaleBy{.factor = prescale, .divisor = 1}, typename Type::Wide{});
  const auto after = prepared(finish, typename Type::Wide{});
  const bool is_prescaled = prescale != 1.0;
  const U64 head = head_of_sum(count, sources, out);
  in_groups<kGroup<Raw>>(share_of_grid(at), head, count, [=, &sources](U64 i, auto times) {
    constexpr U32 kCount = decltype(times)::kCount;
    auto sums = source_elements<Type, kCount>(sources.of[0], i, before, is_prescaled);
    for (U32 source = 1; source < sources.count; ++source) {
      const auto terms = source_elements<Type, kCount>(sources.of[source], i, before, is_prescaled);
      RUEDA_UNROLL
      for (U32 k = 0; k < kCount; ++k) sums.of[k] = Arithmetic<Type>::add(sums.of[k], terms.of[k]);
    }
    Group<Raw, kCount> group;
    RUEDA_UNROLL
    for (U32 k = 0; k < kCount; ++k) group.of[k] = Type::narrow(Arithmetic<Type>::scale(sums.of[k], after));
    store(group, out + i);
  });
}

template <class Type>
RUEDA_DEVICE void widen_elements(ThreadIndex at, const void* from, void* to, U64 count) {
  using Raw = typename Type::Raw;
  const Raw* in = static_cast<const Raw*>(from);
  auto* out = static_cast<float*>(to);
  in_groups<kGroup<Raw>>(share_of_grid(at), head_of(count, in, out), count, [=](U64 i, auto times) {
    constexpr U32 kCount = decltype(times)::kCount;
    const auto group = load<kCount>(in + i);
    Group<float, kCount> wide;
    RUEDA_UNROLL
    for (U32 k = 0; k < kCount; ++k) wide.of[k] = Type::widen(group.of[k]);
    store(wide, out + i);
  });
}

template <class Type>
RUEDA_DEVICE void narrow_elements(ThreadIndex at, const void* from, void* to, U64 count) {
  using Raw = typename Type::Raw;
  const auto* in = static_cast<const float*>(from);
  Raw* out = static_cast<Raw*>(to);
  in_groups<kGroup<Raw>>(share_of_grid(at), head_of(count, out, in), count, [=](U64 i, auto times) {
    constexpr U32 kCount = decltype(times)::kCount;
    const auto wide = load<kCount>(in + i);
    Group<Raw, kCount> group;
    RUEDA_UNROLL
    for (U32 k = 0; k < kCount; ++k) group.of[k] = Type::narrow(wide.of[k]);
    store(group, out + i);
  });
}

}  // namespace rueda::cuda::device

// Every kernel by name, as RUEDA_KERNELS(F): F(name, (parameters), call of its body). `at` is the place of
// the thread. There is no other list.
#define RUEDA_KERNELS_OF_TYPE(F, dtype, Type)                                                   \
  F(rueda_scale_##dtype, (const void* from, void* to, U64 count, ScaleBy by),                   \
    scale_elements<Type>(share_of_grid(at), from, to, count, by))                               \
  F(rueda_add_##dtype, (const void* one, const void* other, void* to, U64 count),               \
    add_elements<Type>(at, one, other, to, count))                                              \
  F(rueda_sum_##dtype, (Sources sources, void* to, U64 count, double prescale, ScaleBy finish), \
    sum_elements<Type>(at, sources, to, count, prescale, finish))

#define RUEDA_KERNELS_OF_ADASUM(F, dtype, T)                                                             \
  F(rueda_dots_##dtype,                                                                                  \
    (const TableEntry* table, U32 entries, U64 chunks, const U8* a, const U8* b, Dots* partial),         \
    dot_vectors<T>(at, table, entries, chunks, a, b, partial))                                           \
  F(rueda_combine_##dtype,                                                                               \
    (const TableEntry* table, U32 entries, U64 chunks, const Factors* factors, const U8* a, const U8* b, \
     U8* to),                                                                                            \
    combine_vectors<T>(at, table, entries, chunks, factors, a, b, to))

#define RUEDA_KERNELS_OF_FLOAT(F, dtype, Type)                                                               \
  F(rueda_pack_scaled_##dtype, (const TableEntry* table, U32 entries, U64 chunks, U8* buffer, ScaleBy by),   \
    (move_scaled<Type, true>(at, table, entries, chunks, buffer, by)))                                       \
  F(rueda_unpack_scaled_##dtype, (const TableEntry* table, U32 entries, U64 chunks, U8* buffer, ScaleBy by), \
    (move_scaled<Type, false>(at, table, entries, chunks, buffer, by)))

#define RUEDA_KERNELS(F)                                                                    \
  F(rueda_pack, (const TableEntry* table, U32 entries, U64 chunks, U8* buffer),             \
    move_runs<true>(at, table, entries, chunks, buffer))                                    \
  F(rueda_unpack, (const TableEntry* table, U32 entries, U64 chunks, U8* buffer),           \
    move_runs<false>(at, table, entries, chunks, buffer))                                   \
  F(rueda_cast_float16_to_float32, (const void* from, void* to, U64 count),                 \
    widen_elements<Float16>(at, from, to, count))                                           \
  F(rueda_cast_bfloat16_to_float32, (const void* from, void* to, U64 count),                \
    widen_elements<Bfloat16>(at, from, to, count))                                          \
  F(rueda_cast_float32_to_float16, (const void* from, void* to, U64 count),                 \
    narrow_elements<Float16>(at, from, to, count))                                          \
  F(rueda_cast_float32_to_bfloat16, (const void* from, void* to, U64 count),                \
    narrow_elements<Bfloat16>(at, from, to, count))                                         \
  RUEDA_KERNELS_OF_TYPE(F, uint8, Plain<U8>)                                                \
  RUEDA_KERNELS_OF_TYPE(F, int8, Plain<signed char>)                                        \
  RUEDA_KERNELS_OF_TYPE(F, uint16, Plain<U16>)                                              \
  RUEDA_KERNELS_OF_TYPE(F, int16, Plain<short>)                                             \
  RUEDA_KERNELS_OF_TYPE(F, int32, Plain<int>)                                               \
  RUEDA_KERNELS_OF_TYPE(F, int64, Plain<I64>)                                               \
  RUEDA_KERNELS_OF_TYPE(F, float16, Float16)                                                \
  RUEDA_KERNELS_OF_TYPE(F, bfloat16, Bfloat16)                                              \
  RUEDA_KERNELS_OF_TYPE(F, float32, Plain<float>)                                           \
  RUEDA_KERNELS_OF_TYPE(F, float64, Plain<double>)                                          \
  RUEDA_KERNELS_OF_TYPE(F, bool, Bool)                                                      \
  RUEDA_KERNELS_OF_FLOAT(F, float16, Float16)                                               \
  RUEDA_KERNELS_OF_FLOAT(F, bfloat16, Bfloat16)                                             \
  RUEDA_KERNELS_OF_FLOAT(F, float32, Plain<float>)                                          \
  RUEDA_KERNELS_OF_FLOAT(F, float64, Plain<double>)                                         \
  F(rueda_fold_dots, (const Dots* partial, U64 chunks, U64 lanes, Dots* sums),              \
    fold_dots(at, partial, chunks, lanes, sums))                                            \
  F(rueda_adasum_factors,                                                                   \
    (const TableEntry* table, U32 entries, U64 chunks, const Dots* sums, Factors* factors), \
    adasum_factors(at, table, entries, chunks, sums, factors))                              \
  RUEDA_KERNELS_OF_ADASUM(F, float32, float)                                                \
  RUEDA_KERNELS_OF_ADASUM(F, float64, double)
