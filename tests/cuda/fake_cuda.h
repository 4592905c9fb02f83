// What tests may ask of the libcuda of their own, besides CUDA's functions. The library honours these
// variables of the environment when its first function is called:
//
//   FAKE_CUDA_DEVICES    devices of the machine; 2. CUDA_VISIBLE_DEVICES chooses among them, as for CUDA
//   FAKE_CUDA_MEMORY     bytes of each device; 1 GiB
//   FAKE_CUDA_UNIFIED    1: any memory of the process passes for that of its first device; 0
//   FAKE_CUDA_VERSION    what cuDriverGetVersion answers; 12040
//   FAKE_CUDA_MISSING    comma list of functions that cuGetProcAddress does not find
//   FAKE_CUDA_PLANT      comma list of function:n:result: the n-th call from now on answers result
//   FAKE_CUDA_SEED       of the delays before each work of a stream; 1
//   FAKE_CUDA_DELAY_US   the longest such delay; 200
//
// Memory of a device from 1 MiB on can be exported (cuIpcGetMemHandle): it is a file in memory, which other
// processes of the same user open through /proc. Unlike CUDA, a process may map memory of its own.
//
// Memory of a device is memory of the process, so a test may look at it where no stream works on it. Streams
// are threads: copies, kernels and events really happen later, one after the other in each stream.
#pragma once

#include <cstddef>

extern "C" {

// The n-th call of this function from now on answers result, without any effect. n = 1: the next one.
void fake_cuda_plant(const char* function, int n, int result);
// The work that the device does next fails: everything later on the device answers result.
void fake_cuda_fail_device(int device, int result);
// Forgets plants and failures of devices. Streams go on.
void fake_cuda_heal(void);
// The bytes that a device may still hand out from now on.
void fake_cuda_set_free_memory(int device, size_t bytes);
// Devices are MIG instances of one GPU, or GPUs.
void fake_cuda_make_instances(bool are_instances);
// How often the function was called so far.
size_t fake_cuda_calls(const char* function);
// Bytes of devices, and pinned bytes of the host, that were allocated and not freed.
size_t fake_cuda_device_bytes(void);
size_t fake_cuda_pinned_bytes(void);
}
