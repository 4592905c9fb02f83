#include "rueda/kernels/cpu.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace rueda::kernels {
namespace {

// Bits of leaf 1, ecx.
constexpr uint32_t kPclmul = 1U << 1, kSsse3 = 1U << 9, kFma = 1U << 12, kSse42 = 1U << 20, kAes = 1U << 25,
                   kOsSavesState = 1U << 27, kAvx = 1U << 28, kF16c = 1U << 29;
// Bits of leaf 7, ebx.
constexpr uint32_t kBmi = 1U << 3, kAvx2 = 1U << 5, kBmi2 = 1U << 8, kAvx512F = 1U << 16,
                   kAvx512Dq = 1U << 17, kAvx512Bw = 1U << 30, kAvx512Vl = 1U << 31;
// Bits of XCR0.
constexpr uint64_t kSavesYmm = 0x6, kSavesZmm = 0xE6;

constexpr bool has_all(uint64_t bits, uint64_t wanted) { return (bits & wanted) == wanted; }

}  // namespace

CpuAnswers ask_cpu() {
  CpuAnswers answers;
#if defined(__x86_64__)
  uint32_t a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) != 0) answers.leaf1_ecx = c;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) != 0) answers.leaf7_ebx = b;
  if (has_all(answers.leaf1_ecx, kOsSavesState)) {
    uint32_t low = 0, high = 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    answers.saved_state = uint64_t{high} << 32 | low;
  }
#endif
  return answers;
}

CpuFeatures decode(const CpuAnswers& answers) {
  CpuFeatures found;
  const uint64_t saved = has_all(answers.leaf1_ecx, kOsSavesState) ? answers.saved_state : 0;
  found.has_sse4 = has_all(answers.leaf1_ecx, kSse42 | kSsse3 | kPclmul | kAes);
  found.has_avx2 = found.has_sse4 && has_all(saved, kSavesYmm) &&
                   has_all(answers.leaf1_ecx, kAvx | kFma | kF16c) &&
                   has_all(answers.leaf7_ebx, kAvx2 | kBmi | kBmi2);
  found.has_avx3 = found.has_avx2 && has_all(saved, kSavesZmm) &&
                   has_all(answers.leaf7_ebx, kAvx512F | kAvx512Dq | kAvx512Bw | kAvx512Vl);
  return found;
}

}  // namespace rueda::kernels
