// Lays the tensors of one response out for one backend call, and takes the result apart again. One tensor
// goes by its own memory; several share the fusion buffer. Engine thread only.
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

// A buffer that grows to what is asked and is used by one batch at a time.
class FusionBuffer {
 public:
  std::byte* reserve(size_t bytes);  // null when there is no memory

 private:
  HostMemory memory_;
  size_t capacity_ = 0;
};

// One tensor of a batch. ref is empty when this rank has joined and takes part with identity elements.
struct BatchTensor {
  std::optional<TensorRef> ref;
  std::vector<int64_t> shape;
  std::vector<int64_t> rows;  // Entry::rows
  int64_t row_count = 1;      // elements of one row
};

struct Batch {
  control::Response response;
  std::shared_ptr<const Group> group;
  std::vector<BatchTensor> tensors;
  schedule::Spec spec;
  const std::byte* input = nullptr;  // of the backend call
  std::byte* output = nullptr;
  bool is_fused = false;
  bool is_copied = false;  // goes through the fusion buffer although it would not have to
  bool is_gated = false;   // backend::Call
  bool goes_by_pieces =
      false;  // the backend takes the tensors where they lie: pieces instead of input, output
  std::vector<backend::Piece> pieces;
};

// Fails when a tensor this rank must have is not there.
Result<Batch> plan_batch(control::Response response, std::shared_ptr<const Group> group,
                         const Operations& operations);
// If the call is cancelled, the tensors will be as they were. Where the backend does not see to that, one
// that is reduced in place is copied, and a large one waits at a gate until all ranks have started.
void make_cancellable(Batch& batch, const backend::Backend& backend);
// Does the batch need packing, that is, bytes moved before the call?
bool needs_packing(const Batch& batch);
// Chooses buffers, allocates outputs the engine owns, moves (and prescales) inputs. Sets input and output.
// Fails when this machine has no memory for an output or the buffer.
Status pack(Batch& batch, FusionBuffer& fusion);
// Moves results to the tensors' outputs and sets their shapes.
void unpack(Batch& batch);

}  // namespace rueda::runtime
