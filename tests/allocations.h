// How often operator new was called, for tests that count it; runtime_prepared_test.cc replaces it.
#pragma once

#include <cstdint>

#include "sanitizers.h"

#if RUEDA_UNDER_ASAN || RUEDA_UNDER_TSAN
#define RUEDA_COUNTS_ALLOCATIONS 0  // sanitizers bring their own operator new
#else
#define RUEDA_COUNTS_ALLOCATIONS 1
#endif

namespace rueda {

int64_t allocations_of_thread();
int64_t allocations();  // of all threads

}  // namespace rueda
