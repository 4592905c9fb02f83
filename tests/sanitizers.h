// Which sanitizers a test is compiled with, 0 or 1 each: GCC and Clang tell it in different ways.
#pragma once

#if defined(__has_feature)
#define RUEDA_HAS_SANITIZER(name) __has_feature(name)
#else
#define RUEDA_HAS_SANITIZER(name) 0
#endif

#if defined(__SANITIZE_ADDRESS__) || RUEDA_HAS_SANITIZER(address_sanitizer)
#define RUEDA_UNDER_ASAN 1
#else
#define RUEDA_UNDER_ASAN 0
#endif

#if defined(__SANITIZE_THREAD__) || RUEDA_HAS_SANITIZER(thread_sanitizer)
#define RUEDA_UNDER_TSAN 1
#else
#define RUEDA_UNDER_TSAN 0
#endif
