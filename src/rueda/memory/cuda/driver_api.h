// What rueda uses of the CUDA driver API: types, values and prototypes, as the C ABI of libcuda.so.1 has
// them. No header of CUDA is included, so a build needs no toolkit. The names are those of CUDA's
// documentation.
//
// There is no other list of functions: driver.h makes the table of pointers from RUEDA_CUDA_FUNCTIONS(F),
// which is F(name, (arguments)); every function returns a CUresult.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rueda::cuda {

using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUcontext = struct CUctx_st*;
using CUstream = struct CUstream_st*;
using CUevent = struct CUevent_st*;
using CUmodule = struct CUmod_st*;
using CUfunction = struct CUfunc_st*;
using CUhostFn = void (*)(void* argument);

// Any other value is a failure as well.
enum CUresult : int {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_NOT_INITIALIZED = 3,
  CUDA_ERROR_DEINITIALIZED = 4,
  CUDA_ERROR_NO_DEVICE = 100,
  CUDA_ERROR_INVALID_DEVICE = 101,
  CUDA_ERROR_INVALID_CONTEXT = 201,
  CUDA_ERROR_PEER_ACCESS_UNSUPPORTED = 217,
  CUDA_ERROR_INVALID_PTX = 218,
  CUDA_ERROR_INVALID_HANDLE = 400,
  CUDA_ERROR_NOT_FOUND = 500,
  CUDA_ERROR_NOT_READY = 600,
  CUDA_ERROR_ILLEGAL_ADDRESS = 700,
  CUDA_ERROR_LAUNCH_FAILED = 719,
  CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
  CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901,
  CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = 906,
  CUDA_ERROR_CAPTURED_EVENT = 907,
};

enum CUstreamCaptureStatus : int {
  CU_STREAM_CAPTURE_STATUS_NONE = 0,
  CU_STREAM_CAPTURE_STATUS_ACTIVE = 1,
  CU_STREAM_CAPTURE_STATUS_INVALIDATED = 2,
};

enum CUstreamCaptureMode : int {
  CU_STREAM_CAPTURE_MODE_GLOBAL = 0,
  CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1,
  CU_STREAM_CAPTURE_MODE_RELAXED = 2,
};

enum CUpointer_attribute : int {
  CU_POINTER_ATTRIBUTE_CONTEXT = 1,
  CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2,
  CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9,
  CU_POINTER_ATTRIBUTE_RANGE_START_ADDR = 11,
  CU_POINTER_ATTRIBUTE_RANGE_SIZE = 12,
};

struct CUuuid {
  unsigned char bytes[16];
};

// Names memory from cuMemAlloc, so that another process of this machine can map it. Bytes without meaning.
struct CUipcMemHandle {
  char reserved[64];
};

inline constexpr unsigned kStreamNonBlocking = 1;   // CU_STREAM_NON_BLOCKING
inline constexpr unsigned kEventDisableTiming = 2;  // CU_EVENT_DISABLE_TIMING
inline constexpr unsigned kHostAllocPortable = 1;   // CU_MEMHOSTALLOC_PORTABLE
inline constexpr unsigned kMemoryTypeDevice = 2;    // CU_MEMORYTYPE_DEVICE
inline constexpr unsigned kIpcLazyPeerAccess = 1;   // CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
inline constexpr int kUuidVersion = 11040;          // CUDA 11.4: cuDeviceGetUuid tells MIG instances apart
inline constexpr int kApiVersion = 11030;           // CUDA 11.3: the first driver with cuGetProcAddress

}  // namespace rueda::cuda

// clang-format off
#define RUEDA_CUDA_FUNCTIONS(F)                                                                             \
  F(cuInit, (unsigned flags))                                                                               \
  F(cuDriverGetVersion, (int* version))                                                                     \
  F(cuGetErrorName, (CUresult error, const char** name))                                                    \
  F(cuGetErrorString, (CUresult error, const char** text))                                                  \
  /* devices and contexts */                                                                                \
  F(cuDeviceGetCount, (int* count))                                                                         \
  F(cuDeviceGet, (CUdevice* device, int ordinal))                                                           \
  F(cuDeviceGetName, (char* name, int bytes, CUdevice device))                                              \
  F(cuDeviceGetUuid, (CUuuid* uuid, CUdevice device))                                                       \
  F(cuDevicePrimaryCtxRetain, (CUcontext* context, CUdevice device))                                        \
  F(cuDevicePrimaryCtxRelease, (CUdevice device))                                                           \
  F(cuCtxPushCurrent, (CUcontext context))                                                                  \
  F(cuCtxPopCurrent, (CUcontext* context))                                                                  \
  F(cuCtxGetDevice, (CUdevice* device))                                                                     \
  F(cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode* mode))                                         \
  /* memory */                                                                                              \
  F(cuMemGetInfo, (size_t* free, size_t* total))                                                            \
  F(cuMemAlloc, (CUdeviceptr* address, size_t bytes))                                                       \
  F(cuMemFree, (CUdeviceptr address))                                                                       \
  F(cuMemHostAlloc, (void** address, size_t bytes, unsigned flags))                                         \
  F(cuMemFreeHost, (void* address))                                                                         \
  F(cuMemcpyAsync, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream))                       \
  F(cuPointerGetAttributes,                                                                                 \
    (unsigned count, CUpointer_attribute* attributes, void** values, CUdeviceptr address))                  \
  F(cuIpcGetMemHandle, (CUipcMemHandle* handle, CUdeviceptr address))                                       \
  F(cuIpcOpenMemHandle, (CUdeviceptr* address, CUipcMemHandle handle, unsigned flags))                      \
  F(cuIpcCloseMemHandle, (CUdeviceptr address))                                                             \
  /* streams and events */                                                                                  \
  F(cuCtxGetStreamPriorityRange, (int* least, int* greatest))                                               \
  F(cuStreamCreateWithPriority, (CUstream* stream, unsigned flags, int priority))                           \
  F(cuStreamDestroy, (CUstream stream))                                                                     \
  F(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags))                                    \
  F(cuStreamGetCtx, (CUstream stream, CUcontext* context))                                                  \
  F(cuStreamIsCapturing, (CUstream stream, CUstreamCaptureStatus* status))                                  \
  F(cuStreamQuery, (CUstream stream))                                                                       \
  F(cuLaunchHostFunc, (CUstream stream, CUhostFn function, void* argument))                                 \
  F(cuEventCreate, (CUevent* event, unsigned flags))                                                        \
  F(cuEventDestroy, (CUevent event))                                                                        \
  F(cuEventRecord, (CUevent event, CUstream stream))                                                        \
  F(cuEventQuery, (CUevent event))                                                                          \
  /* kernels */                                                                                             \
  F(cuModuleLoadData, (CUmodule* module, const void* image))                                                \
  F(cuModuleUnload, (CUmodule module))                                                                      \
  F(cuModuleGetFunction, (CUfunction* function, CUmodule module, const char* name))                         \
  F(cuLaunchKernel,                                                                                         \
    (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,              \
     unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void** arguments,          \
     void** extra))
// clang-format on
