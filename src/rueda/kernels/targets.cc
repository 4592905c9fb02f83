#include "rueda/kernels/targets.h"

#include <atomic>
#include <string_view>

namespace rueda::kernels {
namespace {

// Highway 1.0.3 compiles HWY_AVX2 with BMI, FMA and F16C, and HWY_AVX3 with the four AVX-512 parts. The CPU
// must have all of them. The CPU detection of the compiler also checks (with XGETBV) whether the operating
// system saves the wide registers.
bool is_supported(int64_t target) {
#if HWY_ARCH_X86
  __builtin_cpu_init();
  const bool has_sse4 = __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul") &&
                        __builtin_cpu_supports("aes") && __builtin_cpu_supports("ssse3");
  const bool has_avx2 = has_sse4 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
                        __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("fma") &&
                        __builtin_cpu_supports("f16c");
  if (target == HWY_SSE4) return has_sse4;
  if (target == HWY_AVX2) return has_avx2;
  if (target == HWY_AVX3) {
    return has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
  }
#endif
  return target == HWY_STATIC_TARGET;
}

struct Tables {
  static constexpr size_t kMax = 4;
  Table usable[kMax];
  size_t count = 0;

  Tables() {
#if HWY_ARCH_X86
    for (const int64_t target : {HWY_AVX3, HWY_AVX2, HWY_SSE4, HWY_STATIC_TARGET}) {
#else
    for (const int64_t target : {HWY_STATIC_TARGET}) {
#endif
      Table& next = usable[count];
      if (!is_supported(target)) continue;
      if (fill_real(target, next) && fill_half(target, next) && fill_integer(target, next)) ++count;
    }
  }
};

const Tables& tables() {
  static const Tables made;
  return made;
}

// Null until a target is selected. Atomic, so that threads of tests and benchmarks may select without
// a data race.
std::atomic<const Table*> g_selected{nullptr};

}  // namespace

std::span<const Table> usable_tables() { return {tables().usable, tables().count}; }

const Table& table() {
  const Table* selected = g_selected.load(std::memory_order_relaxed);
  return selected != nullptr ? *selected : tables().usable[0];
}

bool select_target(std::string_view name) {
  const Table* found = nullptr;
  for (const Table& each : usable_tables())
    if (each.name == name) found = &each;
  if (found == nullptr && !name.empty()) return false;
  g_selected.store(found, std::memory_order_relaxed);
  return true;
}

}  // namespace rueda::kernels
