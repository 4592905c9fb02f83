#include "rueda/kernels/targets.h"

#include <atomic>
#include <string_view>

#include "rueda/kernels/cpu.h"

namespace rueda::kernels {
namespace {

// Highway 1.0.3 compiles HWY_AVX2 with BMI, FMA and F16C, and HWY_AVX3 with the four AVX-512 parts. The CPU
// must have all of them.
bool is_supported([[maybe_unused]] const CpuFeatures& cpu, int64_t target) {
#if HWY_ARCH_X86
  if (target == HWY_SSE4) return cpu.has_sse4;
  if (target == HWY_AVX2) return cpu.has_avx2;
  if (target == HWY_AVX3) return cpu.has_avx3;
#endif
  return target == HWY_STATIC_TARGET;
}

struct Tables {
  static constexpr size_t kMax = 4;
  Table usable[kMax];
  size_t count = 0;

  Tables() {
    const CpuFeatures cpu = decode(ask_cpu());
#if HWY_ARCH_X86
    for (const int64_t target : {HWY_AVX3, HWY_AVX2, HWY_SSE4, HWY_STATIC_TARGET}) {
#else
    for (const int64_t target : {HWY_STATIC_TARGET}) {
#endif
      Table& next = usable[count];
      if (!is_supported(cpu, target)) continue;
      if (fill_real(target, next) && fill_half(target, next) && fill_integer(target, next) &&
          fill_wire(target, next))
        ++count;
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
