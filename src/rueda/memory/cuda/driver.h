// The CUDA driver of this machine: libcuda.so.1, loaded at run time, as a table of functions. Nothing of CUDA
// is linked. A driver that is missing, too old or incomplete is one sentence. Immutable once loaded.
//
// Loading does not initialise CUDA: programs set CUDA_VISIBLE_DEVICES after init, and forked children may use
// CUDA only if their parent has not. Device::open() initialises it.
#pragma once

#include <memory>
#include <string>

#include "rueda/base/status.h"
#include "rueda/memory/cuda/driver_api.h"

namespace rueda::cuda {

struct Driver {
#define RUEDA_CUDA_MEMBER(name, arguments) CUresult(*name) arguments = nullptr;
  RUEDA_CUDA_FUNCTIONS(RUEDA_CUDA_MEMBER)
#undef RUEDA_CUDA_MEMBER
  // Of the MIG instance, if the device is one; otherwise, and with a driver older than CUDA 11.4, that of
  // the GPU, which cuDeviceGetUuid always gives.
  CUresult (*uuid_of_instance)(CUuuid* uuid, CUdevice device) = nullptr;
  int version = 0;  // 12040: CUDA 12.4

  // Never unloaded, because CUDA does not allow it. kUnavailable: this machine has no such library;
  // kUnsupported: it has one that rueda cannot use.
  static Result<std::shared_ptr<const Driver>> load(const std::string& library = "libcuda.so.1");

  // What a failing call answers as a Status: "CUDA cannot launch the copy: CUDA_ERROR_... (text)." Ok for
  // CUDA_SUCCESS. what: "launch the copy".
  [[nodiscard]] Status check(CUresult result, const std::string& what) const;
  [[nodiscard]] std::string describe(CUresult result) const;  // "CUDA_ERROR_OUT_OF_MEMORY (out of memory)"
};

inline CUdeviceptr address_of(const void* memory) { return reinterpret_cast<CUdeviceptr>(memory); }
inline void* pointer_to(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

}  // namespace rueda::cuda
