// Which ready tensors share one transfer. Pure and deterministic.
#pragma once

#include <cstdint>
#include <vector>

#include "rueda/control/tensor.h"

namespace rueda::control {

struct FusionOptions {
  int64_t fusion_bytes = 0;  // a fused response is never larger; 0 = nothing is fused
  int64_t alone_bytes = 0;   // a tensor that is as large travels alone: packing would cost more; 0 = none
  bool group_fusion_disabled = false;
};

// Whether the tensors of two responses may share a transfer.
bool can_share(const Candidate& a, const Candidate& b);

// Responses in the order of their first tensor; a later tensor may ride along with an earlier one of its
// kind. The members of a group end up in the same response, or in responses that follow one another.
std::vector<Response> fuse(std::vector<Unit> units, const FusionOptions& options);

}  // namespace rueda::control
