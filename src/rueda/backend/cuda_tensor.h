// What every backend for CUDA memory checks before it uses a tensor of a call.
#pragma once

#include "rueda/backend/backend.h"
#include "rueda/memory/cuda/device.h"

namespace rueda::backend {

// Whether the tensor lies on the device that its call names, and its ready event can be waited for. A failure
// has kUnavailable: this process alone sees it, and another code might count as the same refusal on every
// rank. Any thread.
Status check_tensor(const cuda::Device& device, const Segment& segment);

}  // namespace rueda::backend
