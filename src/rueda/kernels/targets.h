// Which instruction sets are compiled, and how a file hands its loops to the tables. Included before
// foreach_target.h by each simd_*.cc. The choice at run time is in targets.cc and not Highway's own, which is
// in libhwy.so: the core depends on glibc only.
#pragma once

#include "rueda/kernels/table.h"

// SSSE3 without SSE4 exists only in CPUs of 2006, which get the portable loops.
#define HWY_DISABLED_TARGETS (HWY_SSSE3)
#include "hwy/base.h"
#include "hwy/detect_targets.h"

namespace rueda::kernels {

// Each function fills its part of the table of one HWY_TARGET bit. Returns false if that target is
// not compiled in.
bool fill_real(int64_t target, Table& table);
bool fill_half(int64_t target, Table& table);
bool fill_integer(int64_t target, Table& table);
bool fill_wire(int64_t target, Table& table);

}  // namespace rueda::kernels

#if HWY_ARCH_X86
#define RUEDA_KERNELS_X86_FILLS(function)                       \
  if (target == HWY_SSE4) return N_SSE4::function(table), true; \
  if (target == HWY_AVX2) return N_AVX2::function(table), true; \
  if (target == HWY_AVX3) return N_AVX3::function(table), true;
#else
#define RUEDA_KERNELS_X86_FILLS(function)
#endif

#define RUEDA_KERNELS_DEFINE_FILL(function)                                             \
  namespace rueda::kernels {                                                            \
  bool function(int64_t target, Table& table) {                                         \
    RUEDA_KERNELS_X86_FILLS(function)                                                   \
    if (target == HWY_STATIC_TARGET) return HWY_STATIC_DISPATCH(function)(table), true; \
    return false;                                                                       \
  }                                                                                     \
  }
