// What the bodies of kernels share: the place of a thread, and tables of runs, which blocks take in chunks.
#pragma once

#if defined(__CUDA__)
#define RUEDA_DEVICE static __attribute__((device)) inline
#else
#define RUEDA_DEVICE static inline
#endif

// Before a loop: whether the compiler for devices copies its body. Elements of a group stay in registers only
// where all of its loops are unrolled; a long loop that is unrolled takes the registers of other blocks.
#if defined(__CUDA__)
#define RUEDA_UNROLL _Pragma("clang loop unroll(full)")
#define RUEDA_ROLLED _Pragma("clang loop unroll(disable)")
#else
#define RUEDA_UNROLL
#define RUEDA_ROLLED
#endif

namespace rueda::cuda::device {

using U8 = unsigned char;
using U16 = unsigned short;
using U32 = unsigned;
using U64 = unsigned long long;
using I64 = long long;

// Of one thread.
struct ThreadIndex {
  U64 block = 0, blocks = 1;
  U64 thread = 0, threads = 1;  // in its block
};

// Hides from the compiler where a number comes from. It would otherwise keep an address for each load of
// every loop that follows, from one chunk to the next, and the registers for them would leave room for one
// block only.
RUEDA_DEVICE U64 as_it_is(U64 value) {
#if defined(__CUDA__)
  asm volatile("" : "+l"(value));
#endif
  return value;
}

// One run of a tensor. Chunks are numbered over all entries of a table.
struct TableEntry {
  U64 tensor;       // address
  U64 offset;       // in the buffer
  U64 bytes;        // more than 0
  U64 first_chunk;  // the number of its first chunk
};

// Behind the entries of a table: the number of the entry that each chunk belongs to, a U32 for each chunk.
RUEDA_DEVICE const TableEntry& entry_of(const TableEntry* table, U32 entries, U64 chunk) {
  return table[reinterpret_cast<const U32*>(table + entries)[chunk]];
}

}  // namespace rueda::cuda::device
