// For compilers that put a memcpy of their own into every library, as Zig does: it is built for the oldest
// machine of an architecture. With `-Wl,--wrap=memcpy` (and so on) these functions take its place. They call
// the C library, which knows this machine. The versions are those that any glibc has.
#include <cstddef>

#if defined(__x86_64__)
#define RUEDA_SINCE "GLIBC_2.2.5"
#define RUEDA_MEMCPY_SINCE "GLIBC_2.14"
#elif defined(__aarch64__)
#define RUEDA_SINCE "GLIBC_2.17"
#define RUEDA_MEMCPY_SINCE "GLIBC_2.17"
#else
#error "Name the versions of glibc's memory functions on this architecture."
#endif

// The linker gives the names beginning with __wrap_.
// NOLINTBEGIN(bugprone-reserved-identifier)
extern "C" {

void* libc_memcpy(void* to, const void* from, std::size_t bytes);
void* libc_memmove(void* to, const void* from, std::size_t bytes);
void* libc_memset(void* to, int value, std::size_t bytes);
int libc_memcmp(const void* a, const void* b, std::size_t bytes);
__asm__(".symver libc_memcpy, memcpy@" RUEDA_MEMCPY_SINCE);
__asm__(".symver libc_memmove, memmove@" RUEDA_SINCE);
__asm__(".symver libc_memset, memset@" RUEDA_SINCE);
__asm__(".symver libc_memcmp, memcmp@" RUEDA_SINCE);

void* __wrap_memcpy(void* to, const void* from, std::size_t bytes) { return libc_memcpy(to, from, bytes); }
void* __wrap_memmove(void* to, const void* from, std::size_t bytes) { return libc_memmove(to, from, bytes); }
void* __wrap_memset(void* to, int value, std::size_t bytes) { return libc_memset(to, value, bytes); }
int __wrap_memcmp(const void* a, const void* b, std::size_t bytes) { return libc_memcmp(a, b, bytes); }

}  // extern "C"
// NOLINTEND(bugprone-reserved-identifier)
