// How the calls of a learned step are put into the buckets of a plan. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "rueda/control/backend_traits.h"
#include "rueda/control/messages.h"
#include "rueda/control/seen_tensor.h"
#include "rueda/control/set_members.h"

namespace rueda::control {

struct BucketLimits {
  // Tensors are fused up to this size. A larger tensor is a bucket of its own. It may overtake small tensors,
  // so that these fuse with later ones.
  int64_t bucket_bytes = 1 << 20;
  int64_t alone_bytes = 0;  // a tensor of this size or more is a bucket of its own as well; 0: none is
  // Where it says bucket_bytes, that holds.
  BackendTraitsLookup traits_of = default_traits;
  // [calls of the step] Whether a bucket begins with this call. Of sizes, bucket_bytes alone counts then.
  // Empty: sizes decide.
  std::vector<bool> begins = {};
};

int64_t elements_of(const Bucket& bucket);  // of all its tensors
// Of a tensor's share of a fused transfer, as in respond.cc; INT64_MAX if that is too large for a number.
int64_t bytes_of(const Bucket& bucket, const Entry& entry);

// [tensors of the plan, in its order] Which of them a step mainly sends: not those that are far smaller than
// the mean, such as a loss that is averaged, or a barrier.
std::vector<bool> large_tensors(std::span<const Bucket> plan);

// The step is in the order in which its tensors are to travel.
std::vector<Bucket> in_buckets(const std::vector<SeenTensor>& step, const SetMembers& sets,
                               const BucketLimits& limits);

// Whether terms allow both in one bucket.
bool can_fuse(const Bucket& a, const Bucket& b);

// [calls of the step] The first call with which each may be in one bucket, with all that are between: terms
// agree, and none was submitted after that first one was answered.
std::vector<size_t> reach(const std::vector<SeenTensor>& step);

}  // namespace rueda::control
