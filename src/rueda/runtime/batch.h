// The tensors of one bucket as one call of a backend: the operations they belong to, what the call must
// compute, and where the bytes are. Engine thread only.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "rueda/backend/backend.h"
#include "rueda/base/trace_sink.h"
#include "rueda/base/types.h"
#include "rueda/control/messages.h"
#include "rueda/runtime/operations.h"
#include "rueda/schedule/step.h"

namespace rueda::runtime {

// One tensor of a batch. ref is empty if this rank has joined and takes part with identity elements.
struct BatchTensor {
  std::optional<TensorRef> ref;
  std::vector<int64_t> shape;
  std::vector<int64_t> rows;    // Entry::rows
  int64_t row_count = 1;        // elements of one row
  std::vector<int64_t> counts;  // elements: rows * row_count
};

struct Batch {
  control::SharedBucket bucket;
  std::shared_ptr<const Group> group;
  std::vector<BatchTensor> tensors;
  schedule::Spec spec;
  Memory memory;                           // of all tensors; each has an event of its own
  std::vector<backend::Segment> segments;  // set by prepare_batch(); refer to tensors
};

// The spec of a call with tensors of these terms, without the sizes.
schedule::Spec spec_of(const control::Terms& terms, Rank group_size);

// What the record of a call says of its tensors; the times of the call are not known here.
CallTrace trace_of(const Batch& batch);
// Records each tensor of the batch. call: the tag of its call, which has ended; without one, the tensors have
// failed before it.
void record_tensors(TraceSink& trace, const Batch& batch, std::optional<uint32_t> call, bool is_ok);

// Fails if this rank has not submitted a tensor of the bucket. is_discarded: this rank takes part without
// tensors of its own.
Result<Batch> make_batch(control::SharedBucket bucket, std::shared_ptr<const Group> group,
                         const Operations& operations, bool is_discarded = false);
// Allocates the outputs that the engine owns, in memory of the kind of the inputs, and lists the segments.
// Fails if this machine has no memory for an output. devices: null if the job has none.
Status prepare_batch(Batch& batch, cuda::Devices* devices);

}  // namespace rueda::runtime
