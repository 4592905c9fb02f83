// What NCCL compares to find two ranks on one GPU.
#pragma once

#include <string>

#include "rueda/memory/cuda/device.h"

namespace rueda::nccl {

// Empty if NCCL allows ranks to share a GPU.
std::string identity_of(const cuda::Device& device);

}  // namespace rueda::nccl
