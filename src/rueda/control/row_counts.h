// Collectives of a learned plan whose rows change from pass to pass: allgathers (a metric, a sparse gradient)
// and alltoalls. Their place in the plan is kept. Directly before such a bucket runs a small allgather of
// fixed size, a call of the plan like others, in which the members tell one another how many rows each gives.
// So no control message is needed. Both start in one event, so a rank has started both or neither, and the
// bucket itself begins when the counts are there. Pure.
//
// Example: 2 ranks, a bucket of the allgathers x and y. Rank 0 gives 3 and 5 rows, rank 1 gives 2 and 0. The
// call before the bucket gathers {3, 5} and {2, 0}, so the rows of x are {3, 2}, and those of y {5, 0}.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "rueda/base/status.h"
#include "rueda/control/messages.h"

namespace rueda::control {

// Collectives of which each rank gives as many rows as it has.
inline bool may_have_varying_rows(Collective what) {
  return what == Collective::kAllgather || what == Collective::kAlltoall;
}
// The rows of its tensors are told anew in each pass. All of a bucket are alike in this.
inline bool has_varying_rows(const Bucket& bucket) {
  return !bucket.entries.empty() && bucket.entries.front().rows_vary;
}
// Of a bucket with varying rows: that it can be what it says.
Status check_varying_rows(const Bucket& bucket);
// The terms of the calls in which rows are told.
Terms row_count_terms();
// The call before a bucket with varying rows.
Bucket row_counts_before(const Bucket& bucket);
// Appends what this rank tells of one tensor.
void tell_rows(const TensorRequest& request, std::vector<int64_t>& told);
// told: by all members, one after the other. Returns Entry::rows of each tensor of the bucket. Fails if no
// rank can have so many.
Result<std::vector<std::vector<int64_t>>> rows_of(const Bucket& bucket, std::span<const int64_t> told);

}  // namespace rueda::control
