// What NCCL compares to find two ranks on one GPU.
#pragma once

#include <string>

#include "rueda/memory/cuda/device.h"

namespace rueda::nccl {

// Empty if NCCL allows ranks to share a GPU. version: of NCCL.
std::string identity_of(const cuda::Device& device, int version);

}  // namespace rueda::nccl
