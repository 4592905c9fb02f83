// The bodies of the kernels of Adasum (device_kernels.h). The vectors of two blocks of ranks hold the same
// tensors at the same places: the entries of a table.
#pragma once

#include "rueda/memory/cuda/device_groups.h"

namespace rueda::cuda::device {

// Of two vectors; partial ones are added in a fixed order, whatever the grid.
struct Dots {
  double ab, aa, bb;
};

// What the vectors of one entry are multiplied with.
struct Factors {
  double a, b;
};

constexpr U64 kDotBytes = 64 << 10;  // of each vector, which one block multiplies at a time

// The part of an entry that a chunk of kDotBytes is.
struct DotChunk {
  U64 offset;  // of its first byte, in both vectors
  U64 count;   // elements
};
template <class T>
RUEDA_DEVICE DotChunk dot_chunk(const TableEntry& entry, U64 chunk) {
  const U64 begin = (chunk - entry.first_chunk) * kDotBytes;
  const U64 left = entry.bytes - begin;
  return {.offset = entry.offset + begin, .count = (left < kDotBytes ? left : kDotBytes) / sizeof(T)};
}

template <class T>
RUEDA_DEVICE void add_products(Dots& sums, T a, T b) {
  const double x = a, y = b;
  sums.ab += x * y;
  sums.aa += x * x;
  sums.bb += y * y;
}

// partial: [chunks][threads of a block]
template <class T>
RUEDA_DEVICE void dot_vectors(ThreadIndex at, const TableEntry* table, U32 entries, U64 chunks, const U8* a,
                              const U8* b, Dots* partial) {
  for (U64 chunk = at.block; chunk < chunks; chunk += at.blocks) {
    const DotChunk part = dot_chunk<T>(entry_of(table, entries, chunk), chunk);
    const T* x = reinterpret_cast<const T*>(a + part.offset);
    const T* y = reinterpret_cast<const T*>(b + part.offset);
    Dots sums = {0, 0, 0};
    U64 i = at.thread;
    for (; i + 3 * at.threads < part.count; i += 4 * at.threads) {  // eight loads are under way at once
      const T x0 = x[i], x1 = x[i + at.threads], x2 = x[i + 2 * at.threads], x3 = x[i + 3 * at.threads];
      const T y0 = y[i], y1 = y[i + at.threads], y2 = y[i + 2 * at.threads], y3 = y[i + 3 * at.threads];
      add_products(sums, x0, y0);
      add_products(sums, x1, y1);
      add_products(sums, x2, y2);
      add_products(sums, x3, y3);
    }
    for (; i < part.count; i += at.threads) add_products(sums, x[i], y[i]);
    partial[chunk * at.threads + at.thread] = sums;
  }
}

// sums: [chunks]. One thread for each of the three sums of a chunk.
RUEDA_DEVICE void fold_dots(ThreadIndex at, const Dots* partial, U64 chunks, U64 lanes, Dots* sums) {
  const auto* from = reinterpret_cast<const double*>(partial);
  auto* to = reinterpret_cast<double*>(sums);
  for (U64 i = at.block * at.threads + at.thread; i < 3 * chunks; i += at.blocks * at.threads) {
    const double* lane = from + i / 3 * lanes * 3 + i % 3;
    double sum = 0;
    for (U64 k = 0; k < lanes; ++k) sum += lane[3 * k];
    to[i] = sum;
  }
}

// factors: [entries]. One thread for each entry.
RUEDA_DEVICE void adasum_factors(ThreadIndex at, const TableEntry* table, U32 entries, U64 chunks,
                                 const Dots* sums, Factors* factors) {
  constexpr double kTiny = 0x1p-511;  // as on the host
  for (U64 i = at.block * at.threads + at.thread; i < entries; i += at.blocks * at.threads) {
    const U64 end = i + 1 < entries ? table[i + 1].first_chunk : chunks;
    Dots all = {0, 0, 0};
    for (U64 chunk = table[i].first_chunk; chunk < end; ++chunk) {
      all.ab += sums[chunk].ab;
      all.aa += sums[chunk].aa;
      all.bb += sums[chunk].bb;
    }
    factors[i] = {.a = all.aa < kTiny ? 1.0 : 1.0 - all.ab / (2 * all.aa),
                  .b = all.bb < kTiny ? 1.0 : 1.0 - all.ab / (2 * all.bb)};
  }
}

// `to` may be one of the vectors.
template <class T>
RUEDA_DEVICE void combine_vectors(ThreadIndex at, const TableEntry* table, U32 entries, U64 chunks,
                                  const Factors* factors, const U8* a, const U8* b, U8* to) {
  for (U64 chunk = at.block; chunk < chunks; chunk += at.blocks) {
    const TableEntry& entry = entry_of(table, entries, chunk);
    const Factors by = factors[&entry - table];
    const DotChunk part = dot_chunk<T>(entry, chunk);
    const T* x = reinterpret_cast<const T*>(a + part.offset);
    const T* y = reinterpret_cast<const T*>(b + part.offset);
    T* out = reinterpret_cast<T*>(to + part.offset);
    const ThreadShare share = {at.thread, at.threads};
    in_groups<kGroup<T>>(share, head_of(part.count, x, y, out), part.count, [=](U64 i, auto times) {
      constexpr U32 kCount = decltype(times)::kCount;
      auto sums = load<kCount>(x + i);
      const auto others = load<kCount>(y + i);
      RUEDA_UNROLL
      for (U32 k = 0; k < kCount; ++k)
        sums.of[k] =
            static_cast<T>(by.a * static_cast<double>(sums.of[k]) + by.b * static_cast<double>(others.of[k]));
      store(sums, out + i);
    });
  }
}

}  // namespace rueda::cuda::device
