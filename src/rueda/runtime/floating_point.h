// The rounding mode and flush-to-zero of the caller must not affect reductions, so that all ranks compute
// the same bits.
#pragma once

#include <cfenv>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace rueda::runtime {

// Sets the default environment on this thread for the life of the object.
class DefaultFloatingPoint {
 public:
  DefaultFloatingPoint(const DefaultFloatingPoint&) = delete;
  DefaultFloatingPoint& operator=(const DefaultFloatingPoint&) = delete;
#if defined(__x86_64__)  // all arithmetic is SSE or wider; fesetenv would cost ten times as much
  DefaultFloatingPoint() : before_(_mm_getcsr()) { _mm_setcsr(kDefault); }
  ~DefaultFloatingPoint() { _mm_setcsr(before_); }

 private:
  static constexpr unsigned kDefault = 0x1F80;  // round to nearest, every exception masked, no flush to zero
  unsigned before_;
#else
  DefaultFloatingPoint() {
    fegetenv(&before_);
    fesetenv(FE_DFL_ENV);
  }
  ~DefaultFloatingPoint() { fesetenv(&before_); }

 private:
  fenv_t before_;
#endif
};

}  // namespace rueda::runtime
