// Declares the functions of the tests' libcuda, so that they cannot differ from what rueda expects.
#pragma once

#include <algorithm>
#include <cstring>

#include "../sanitizers.h"
#include "machine.h"

#define FAKE_CUDA_API extern "C" __attribute__((visibility("default")))

namespace fake_cuda {

inline CUcontext handle_of(Context* context) { return reinterpret_cast<CUcontext>(context); }
inline Context* context_of(CUcontext context) { return reinterpret_cast<Context*>(context); }

// Nobody may take new memory for zeros. ThreadSanitizer keeps notes on each byte: there a mebibyte has to do.
inline void spoil(void* memory, int value, size_t bytes) {
#if RUEDA_UNDER_TSAN
  bytes = std::min(bytes, size_t{1} << 20);
#endif
  std::memset(memory, value, bytes);
}

}  // namespace fake_cuda

using namespace rueda::cuda;  // NOLINT: the names of the C ABI

#define FAKE_CUDA_DECLARE(name, arguments) FAKE_CUDA_API CUresult name arguments;
RUEDA_CUDA_FUNCTIONS(FAKE_CUDA_DECLARE)
#undef FAKE_CUDA_DECLARE

// Counts the call, and returns what was planted for it.
#define FAKE_CUDA_ENTER(function)    \
  Machine& machine = Machine::get(); \
  if (const CUresult planted = machine.enter(#function); planted != CUDA_SUCCESS) return planted
