// The tensors of one bucket as one call of a backend: the operations they belong to, what the call must
// compute, and where the bytes are. Engine thread only.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
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
  control::RowTable rows;       // Entry::rows
  int64_t row_count = 1;        // elements of one row
  std::vector<int64_t> counts;  // elements: rows * row_count
};

struct Batch {
  // Of a tensor: as this rank has submitted it; in a learned plan the number in it grows from step to step.
  [[nodiscard]] const std::string& name(size_t tensor) const {
    const std::optional<TensorRef>& ref = tensors[tensor].ref;
    return ref && ref->has_tensor() ? ref->tensor().request.name : bucket->entries[tensor].name;
  }

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

// What this rank has submitted under the names of the bucket; nothing if it has joined and takes part without
// tensors.
std::vector<std::optional<TensorRef>> find_tensors(const control::Bucket& bucket, const Group& group,
                                                   const Operations& operations);
// tensors: of this rank, one for each entry; none if it takes part without any.
Batch make_batch(control::SharedBucket bucket, std::shared_ptr<const Group> group,
                 std::span<const std::optional<TensorRef>> tensors);
// In a learned plan: the rows of this run, as all members have told them (control/row_counts.h). Fails if no
// rank can have so many.
Status set_rows(Batch& batch, std::span<const int64_t> told);
// Moves the tensors into their batch, for this run of it. Fails if one of them is not what the bucket means.
Status take_tensors(Batch& batch, std::span<std::optional<TensorRef>> tensors);
// Allocates the outputs that the engine owns, in memory of the kind of the inputs, and lists the segments.
// Fails if this machine has no memory for an output. devices: null if the job has none.
Status prepare_batch(Batch& batch, cuda::Devices* devices);

}  // namespace rueda::runtime
