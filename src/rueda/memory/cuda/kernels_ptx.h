// The text of kernels.cu in PTX, which the build writes.
#pragma once

namespace rueda::cuda {

extern const char* const kKernelsPtx;  // ends with a null, as cuModuleLoadData expects

}  // namespace rueda::cuda
