// What this machine's processor can do, read from the processor itself: __builtin_cpu_supports depends on the
// runtime library of the compiler, and that of Zig knows no feature at all.
#pragma once

#include <cstdint>

namespace rueda::kernels {

// Answers of an x86 processor that matter here. All zero where it does not have the leaf.
struct CpuAnswers {
  uint32_t leaf1_ecx = 0, leaf7_ebx = 0;
  uint64_t saved_state = 0;  // XCR0: which registers the operating system saves
};

// The instruction sets of Highway's targets.
struct CpuFeatures {
  bool has_sse4 = false;  // with SSSE3, AES and PCLMUL
  bool has_avx2 = false;  // with BMI, BMI2, FMA and F16C
  bool has_avx3 = false;  // AVX-512 F, VL, DQ and BW
};

CpuAnswers ask_cpu();

// Pure. A set counts only if all below it are there and the operating system saves its registers.
CpuFeatures decode(const CpuAnswers& answers);

}  // namespace rueda::kernels
