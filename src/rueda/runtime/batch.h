// The tensors of one response as one backend call: which operations they belong to, what is asked for, where
// the bytes are. Engine thread only.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "rueda/backend/backend.h"
#include "rueda/base/types.h"
#include "rueda/control/messages.h"
#include "rueda/runtime/operations.h"
#include "rueda/schedule/step.h"

namespace rueda::runtime {

// One tensor of a batch. ref is empty when this rank has joined and takes part with identity elements.
struct BatchTensor {
  std::optional<TensorRef> ref;
  std::vector<int64_t> shape;
  std::vector<int64_t> rows;    // Entry::rows
  int64_t row_count = 1;        // elements of one row
  std::vector<int64_t> counts;  // elements: rows * row_count
};

struct Batch {
  control::SharedBucket response;
  std::shared_ptr<const Group> group;
  std::vector<BatchTensor> tensors;
  schedule::Spec spec;
  Memory memory;                           // of all tensors
  std::vector<backend::Segment> segments;  // after prepare_batch(); refer to tensors
};

// What a call of tensors with these terms asks of a backend, without the sizes.
schedule::Spec spec_of(const control::Terms& terms, Rank group_size);

// Fails when a tensor this rank must have is not there. discarded: this rank takes no part with tensors of
// its own.
Result<Batch> make_batch(control::SharedBucket response, std::shared_ptr<const Group> group,
                         const Operations& operations, bool is_discarded = false);
// Allocates outputs the engine owns, and lists the segments. Fails when this machine has no memory for one.
Status prepare_batch(Batch& batch);

}  // namespace rueda::runtime
