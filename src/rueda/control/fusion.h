// Which ready tensors share one transfer. Pure and deterministic.
#pragma once

#include <cstdint>
#include <vector>

#include "rueda/control/backend_traits.h"
#include "rueda/control/tensor.h"

namespace rueda::control {

struct FusionOptions {
  int64_t fusion_bytes = 0;  // a fused bucket is never larger; 0 = nothing is fused
  bool group_fusion_disabled = false;
  BackendTraitsLookup traits_of = default_traits;
};

// Whether tensors of such a collective may share a transfer at all.
bool is_fusible(Collective what);
// Whether two tensors may share a transfer.
bool can_share(const Candidate& a, const Candidate& b);

// Returns buckets in the order of their first tensor. A later tensor may join the bucket of an earlier one
// of its kind. The members of a group are put into the same bucket, or into buckets that follow one another.
std::vector<Bucket> fuse(std::vector<Unit> units, const FusionOptions& options);

}  // namespace rueda::control
