// The kernels for devices: one for each line of RUEDA_KERNELS. clang compiles this file to PTX when rueda is
// built (cmake/cuda.cmake); it needs no toolkit and no header of CUDA.
#include "rueda/memory/cuda/device_kernels.h"

using namespace rueda::cuda::device;

static __attribute__((device)) inline ThreadIndex thread_index() {
  return {.block = static_cast<U32>(__nvvm_read_ptx_sreg_ctaid_x()),
          .blocks = static_cast<U32>(__nvvm_read_ptx_sreg_nctaid_x()),
          .thread = static_cast<U32>(__nvvm_read_ptx_sreg_tid_x()),
          .threads = static_cast<U32>(__nvvm_read_ptx_sreg_ntid_x())};
}

#define RUEDA_GLOBAL(name, parameters, ...)                 \
  extern "C" __attribute__((global)) void name parameters { \
    const ThreadIndex at = thread_index();                  \
    __VA_ARGS__;                                            \
  }
RUEDA_KERNELS(RUEDA_GLOBAL)
