// What the bodies of kernels share: the place of a thread, and tables of runs, which blocks take in chunks.
#pragma once

#if defined(__CUDA__)
#define RUEDA_DEVICE static __attribute__((device)) inline
#else
#define RUEDA_DEVICE static inline
#endif

namespace rueda::cuda::device {

using U8 = unsigned char;
using U16 = unsigned short;
using U32 = unsigned;
using U64 = unsigned long long;
using I64 = long long;

// Of one thread.
struct Place {
  U64 block = 0, blocks = 1;
  U64 thread = 0, threads = 1;  // in its block
};

// One run of a tensor. Chunks are numbered over all entries of a table.
struct TableEntry {
  U64 tensor;       // address
  U64 offset;       // in the buffer
  U64 bytes;        // more than 0
  U64 first_chunk;  // the number of its first chunk
};

RUEDA_DEVICE const TableEntry& entry_of(const TableEntry* table, U32 entries, U64 chunk) {
  U32 low = 0, high = entries;  // the last entry that begins at this chunk or before
  while (high - low > 1) {
    const U32 middle = low + (high - low) / 2;
    if (table[middle].first_chunk <= chunk)
      low = middle;
    else
      high = middle;
  }
  return table[low];
}

}  // namespace rueda::cuda::device
