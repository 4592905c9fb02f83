/* For LD_PRELOAD: the monotonic clock of this process is 50 ms ahead and gains 100 us in each second. */
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec* out) {
  static long first = 0;
  const int result = (int)syscall(SYS_clock_gettime, clock, out);
  if (result != 0 || clock != CLOCK_MONOTONIC) return result;
  long now = out->tv_sec * 1000000000L + out->tv_nsec, none = 0;
  __atomic_compare_exchange_n(&first, &none, now, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  now += 50000000L + (now - __atomic_load_n(&first, __ATOMIC_RELAXED)) / 10000;
  out->tv_sec = now / 1000000000L;
  out->tv_nsec = now % 1000000000L;
  return 0;
}
