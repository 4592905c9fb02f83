// Do the ranks agree about a tensor? Pure. Its sentences begin as Horovod's do, word for word and in its
// order of checks, because programs and tests look for them; the tensor and who said what follow.
#pragma once

#include "rueda/base/status.h"
#include "rueda/control/tensor.h"

namespace rueda::control {

// Ok, kMismatch, or kUnsupported (the collective needs a rank that has joined).
Status find_mismatch(const CompleteTensor& tensor);

// "rank 0", "ranks 0, 2": at most ten, then how many more.
std::string rank_list(const std::vector<Rank>& ranks);

}  // namespace rueda::control
