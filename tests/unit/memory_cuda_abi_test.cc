// Our declarations of CUDA's driver API against NVIDIA's header, where a package or a toolkit brings one: the
// same arguments as the functions have that a driver finds for CUDA 11.3 (kApiVersion), and the same values.
#include <gtest/gtest.h>

#include "alike_functions.h"
#include "rueda/memory/cuda/driver_api.h"

#if __has_include(<cudaTypedefs.h>)
#include <cuda.h>
#include <cudaTypedefs.h>

namespace rueda::cuda::memory_cuda_abi_test {
namespace {

// cuda.h makes macros of some names, so they are only used with a prefix.
#define RUEDA_OURS(name, arguments) using Ours_##name = CUresult(*) arguments;
RUEDA_CUDA_FUNCTIONS(RUEDA_OURS)
#undef RUEDA_OURS

// version: of CUDA, with which the function got these arguments; at most kApiVersion.
#define RUEDA_SAME_FUNCTION(name, version) \
  static_assert(are_alike(Ours_##name(nullptr), PFN_##name##_v##version(nullptr)), #name)
RUEDA_SAME_FUNCTION(cuInit, 2000);
RUEDA_SAME_FUNCTION(cuDriverGetVersion, 2020);
RUEDA_SAME_FUNCTION(cuGetErrorName, 6000);
RUEDA_SAME_FUNCTION(cuGetErrorString, 6000);
RUEDA_SAME_FUNCTION(cuDeviceGetCount, 2000);
RUEDA_SAME_FUNCTION(cuDeviceGet, 2000);
RUEDA_SAME_FUNCTION(cuDeviceGetName, 2000);
RUEDA_SAME_FUNCTION(cuDeviceGetUuid, 9020);
RUEDA_SAME_FUNCTION(cuDevicePrimaryCtxRetain, 7000);
RUEDA_SAME_FUNCTION(cuDevicePrimaryCtxRelease, 11000);
RUEDA_SAME_FUNCTION(cuCtxPushCurrent, 4000);
RUEDA_SAME_FUNCTION(cuCtxPopCurrent, 4000);
RUEDA_SAME_FUNCTION(cuCtxGetDevice, 2000);
RUEDA_SAME_FUNCTION(cuThreadExchangeStreamCaptureMode, 10010);
RUEDA_SAME_FUNCTION(cuMemGetInfo, 3020);
RUEDA_SAME_FUNCTION(cuMemAlloc, 3020);
RUEDA_SAME_FUNCTION(cuMemFree, 3020);
RUEDA_SAME_FUNCTION(cuMemHostAlloc, 2020);
RUEDA_SAME_FUNCTION(cuMemFreeHost, 2000);
RUEDA_SAME_FUNCTION(cuMemcpyAsync, 4000);
RUEDA_SAME_FUNCTION(cuPointerGetAttributes, 7000);
RUEDA_SAME_FUNCTION(cuIpcGetMemHandle, 4010);
RUEDA_SAME_FUNCTION(cuIpcOpenMemHandle, 11000);
RUEDA_SAME_FUNCTION(cuIpcCloseMemHandle, 4010);
RUEDA_SAME_FUNCTION(cuCtxGetStreamPriorityRange, 5050);
RUEDA_SAME_FUNCTION(cuStreamCreateWithPriority, 5050);
RUEDA_SAME_FUNCTION(cuStreamDestroy, 4000);
RUEDA_SAME_FUNCTION(cuStreamWaitEvent, 3020);
RUEDA_SAME_FUNCTION(cuStreamGetCtx, 9020);
RUEDA_SAME_FUNCTION(cuStreamIsCapturing, 10000);
RUEDA_SAME_FUNCTION(cuStreamQuery, 2000);
RUEDA_SAME_FUNCTION(cuLaunchHostFunc, 10000);
RUEDA_SAME_FUNCTION(cuEventCreate, 2000);
RUEDA_SAME_FUNCTION(cuEventDestroy, 4000);
RUEDA_SAME_FUNCTION(cuEventRecord, 2000);
RUEDA_SAME_FUNCTION(cuEventQuery, 2000);
RUEDA_SAME_FUNCTION(cuModuleLoadData, 2000);
RUEDA_SAME_FUNCTION(cuModuleUnload, 2000);
RUEDA_SAME_FUNCTION(cuModuleGetFunction, 2000);
RUEDA_SAME_FUNCTION(cuLaunchKernel, 4000);
#undef RUEDA_SAME_FUNCTION
static_assert(are_alike(Ours_cuDeviceGetUuid(nullptr), PFN_cuDeviceGetUuid_v11040(nullptr)));

#define RUEDA_SAME(name) static_assert(static_cast<int>(cuda::name) == static_cast<int>(::name))
RUEDA_SAME(CUDA_SUCCESS);
RUEDA_SAME(CUDA_ERROR_INVALID_VALUE);
RUEDA_SAME(CUDA_ERROR_OUT_OF_MEMORY);
RUEDA_SAME(CUDA_ERROR_NOT_INITIALIZED);
RUEDA_SAME(CUDA_ERROR_DEINITIALIZED);
RUEDA_SAME(CUDA_ERROR_NO_DEVICE);
RUEDA_SAME(CUDA_ERROR_INVALID_DEVICE);
RUEDA_SAME(CUDA_ERROR_INVALID_CONTEXT);
RUEDA_SAME(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
RUEDA_SAME(CUDA_ERROR_INVALID_PTX);
RUEDA_SAME(CUDA_ERROR_INVALID_HANDLE);
RUEDA_SAME(CUDA_ERROR_NOT_FOUND);
RUEDA_SAME(CUDA_ERROR_NOT_READY);
RUEDA_SAME(CUDA_ERROR_ILLEGAL_ADDRESS);
RUEDA_SAME(CUDA_ERROR_LAUNCH_FAILED);
RUEDA_SAME(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
RUEDA_SAME(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
RUEDA_SAME(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
RUEDA_SAME(CUDA_ERROR_CAPTURED_EVENT);
RUEDA_SAME(CU_STREAM_CAPTURE_STATUS_NONE);
RUEDA_SAME(CU_STREAM_CAPTURE_STATUS_ACTIVE);
RUEDA_SAME(CU_STREAM_CAPTURE_STATUS_INVALIDATED);
RUEDA_SAME(CU_STREAM_CAPTURE_MODE_GLOBAL);
RUEDA_SAME(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
RUEDA_SAME(CU_STREAM_CAPTURE_MODE_RELAXED);
RUEDA_SAME(CU_POINTER_ATTRIBUTE_CONTEXT);
RUEDA_SAME(CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
RUEDA_SAME(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
#undef RUEDA_SAME
static_assert(kStreamNonBlocking == CU_STREAM_NON_BLOCKING);
static_assert(kEventDisableTiming == CU_EVENT_DISABLE_TIMING);
static_assert(kHostAllocPortable == CU_MEMHOSTALLOC_PORTABLE);
static_assert(kMemoryTypeDevice == CU_MEMORYTYPE_DEVICE);
static_assert(kIpcLazyPeerAccess == CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
static_assert(sizeof(cuda::CUuuid) == sizeof(::CUuuid));
static_assert(sizeof(cuda::CUipcMemHandle) == sizeof(::CUipcMemHandle));

TEST(CudaAbi, is_that_of_the_header_of_nvidia) {
  EXPECT_GE(CUDA_VERSION, kUuidVersion) << "all of it was compared when this file was compiled";
}

}  // namespace
}  // namespace rueda::cuda::memory_cuda_abi_test
#else
TEST(CudaAbi, is_that_of_the_header_of_nvidia) { GTEST_SKIP() << "no package has brought cudaTypedefs.h"; }
#endif
