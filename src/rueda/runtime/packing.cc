#include "rueda/runtime/packing.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "rueda/control/coordinator.h"
#include "rueda/kernels/kernels.h"

namespace rueda::runtime {
namespace {

// A tensor up to this size is copied sooner than all ranks agree that they are there.
constexpr size_t kCopiedBytes = 256 << 10;

int64_t product(const std::vector<int64_t>& dims, size_t from = 0) {
  int64_t result = 1;
  for (size_t i = from; i < dims.size(); ++i) result *= dims[i];
  return result;
}

int64_t count_of(const BatchTensor& tensor) { return product(tensor.shape); }

size_t element_bytes(const Batch& batch) { return size_of(batch.response.dtype); }

int64_t rows_total(const BatchTensor& tensor, size_t begin, size_t count) {
  return std::accumulate(tensor.rows.begin() + static_cast<ptrdiff_t>(begin),
                         tensor.rows.begin() + static_cast<ptrdiff_t>(begin + count), int64_t{0});
}

// Rows this rank gets out of the collective.
int64_t result_rows(const Batch& batch, const BatchTensor& tensor) {
  const auto n = static_cast<size_t>(batch.group->size());
  const auto me = static_cast<size_t>(batch.group->me);
  switch (batch.response.what) {
    case Collective::kAllgather:
      return rows_total(tensor, 0, n);
    case Collective::kReducescatter:
      return tensor.rows[me];
    case Collective::kAlltoall: {
      int64_t rows = 0;
      for (size_t src = 0; src < n; ++src) rows += tensor.rows[src * n + me];
      return rows;
    }
    default:
      return tensor.shape.empty() ? 1 : tensor.shape[0];
  }
}

bool has_rows(Collective what) {
  return what == Collective::kAllgather || what == Collective::kReducescatter ||
         what == Collective::kAlltoall;
}

void fill_counts(Batch& batch) {
  schedule::Spec& spec = batch.spec;
  if (!has_rows(spec.what)) {
    for (const BatchTensor& tensor : batch.tensors) spec.count += count_of(tensor);
    return;
  }
  for (const BatchTensor& tensor : batch.tensors) {
    spec.counts.resize(tensor.rows.size(), 0);
    for (size_t i = 0; i < tensor.rows.size(); ++i) spec.counts[i] += tensor.rows[i] * tensor.row_count;
  }
  if (spec.what == Collective::kReducescatter) {
    spec.count = std::accumulate(spec.counts.begin(), spec.counts.end(), int64_t{0});
  }
}

void fill_spec(Batch& batch) {
  const control::Response& response = batch.response;
  schedule::Spec& spec = batch.spec;
  spec.what = response.what;
  spec.dtype = response.dtype;
  spec.op = response.op == ReduceOp::kAverage ? ReduceOp::kSum : response.op;
  spec.scale.factor = response.postscale;
  spec.scale.divisor = response.op == ReduceOp::kAverage ? batch.group->size() : 1;
  if (response.what == Collective::kBroadcast) {
    const std::vector<Rank>& members = batch.group->members;
    spec.root = static_cast<Rank>(std::find(members.begin(), members.end(), response.root) - members.begin());
  }
  fill_counts(batch);
  if (spec.op == ReduceOp::kAdasum) {
    for (const BatchTensor& tensor : batch.tensors) spec.segments.push_back(count_of(tensor));
  }
}

bool is_prescaled(const Batch& batch) {
  return is_reduction(batch.response.what) && batch.response.prescale != 1.0;
}

// Copies count elements of a tensor's input, prescaled; identity elements where this rank has joined.
void load(const Batch& batch, const BatchTensor& tensor, int64_t begin, int64_t count, std::byte* to) {
  const size_t element = element_bytes(batch);
  if (!tensor.ref) {
    kernels::fill_identity(batch.spec.op, batch.response.dtype, to, static_cast<size_t>(count));
    return;
  }
  const auto* from =
      static_cast<const std::byte*>(tensor.ref->tensor().input) + static_cast<size_t>(begin) * element;
  if (is_prescaled(batch)) {
    kernels::scale(batch.response.dtype, from, to, static_cast<size_t>(count),
                   Scale{.factor = batch.response.prescale});
  } else if (count > 0) {
    std::memcpy(to, from, static_cast<size_t>(count) * element);
  }
}

void store(const BatchTensor& tensor, int64_t begin, const std::byte* from, size_t bytes, size_t element) {
  if (!tensor.ref || bytes == 0) return;
  std::memcpy(static_cast<std::byte*>(tensor.ref->tensor().output) + static_cast<size_t>(begin) * element,
              from, bytes);
}

Status no_memory(const Batch& batch, int64_t count) {
  return {Code::kUnavailable, "no memory for " +
                                  std::to_string(static_cast<size_t>(count) * element_bytes(batch)) +
                                  " bytes of tensor " + batch.response.entries.front().name +
                                  "; use smaller tensors or a machine with more memory."};
}

Status allocate_outputs(Batch& batch) {
  for (BatchTensor& tensor : batch.tensors) {
    if (!tensor.ref) continue;
    Tensor& mine = tensor.ref->tensor();
    mine.result_shape = mine.request.shape;
    if (has_rows(batch.response.what)) mine.result_shape[0] = result_rows(batch, tensor);
    if (batch.response.what == Collective::kAlltoall) {
      const auto n = static_cast<size_t>(batch.group->size());
      mine.received_splits.resize(n);
      for (size_t src = 0; src < n; ++src) {
        mine.received_splits[src] =
            static_cast<int32_t>(tensor.rows[src * n + static_cast<size_t>(batch.group->me)]);
      }
    }
    if (mine.output != nullptr || batch.response.what == Collective::kBarrier) continue;
    mine.allocated = allocate_host(static_cast<size_t>(product(mine.result_shape)) * element_bytes(batch));
    if (mine.allocated == nullptr) return no_memory(batch, product(mine.result_shape));
    mine.output = mine.allocated.get();
  }
  return Status::ok();
}

// Elements of the batch's input and output as the backend sees them.
int64_t input_count(const Batch& batch) {
  int64_t count = 0;
  const auto n = static_cast<size_t>(batch.group->size());
  for (const BatchTensor& tensor : batch.tensors) {
    if (batch.response.what == Collective::kAllgather) {
      count += tensor.rows[static_cast<size_t>(batch.group->me)] * tensor.row_count;
    } else if (batch.response.what == Collective::kAlltoall) {
      count += rows_total(tensor, static_cast<size_t>(batch.group->me) * n, n) * tensor.row_count;
    } else {
      count += count_of(tensor);
    }
  }
  return count;
}

int64_t output_count(const Batch& batch) {
  if (!has_rows(batch.response.what)) return input_count(batch);
  int64_t count = 0;
  for (const BatchTensor& tensor : batch.tensors) count += result_rows(batch, tensor) * tensor.row_count;
  return count;
}

void pack_input(const Batch& batch, std::byte* to) {
  const size_t element = element_bytes(batch);
  if (batch.response.what != Collective::kReducescatter) {
    for (const BatchTensor& tensor : batch.tensors) {
      const int64_t count = batch.response.what == Collective::kAllgather
                                ? tensor.rows[static_cast<size_t>(batch.group->me)] * tensor.row_count
                                : count_of(tensor);
      load(batch, tensor, 0, count, to);
      to += static_cast<size_t>(count) * element;
    }
    return;
  }
  // Destination-major: what rank 0 receives of every tensor, then rank 1, …
  std::vector<int64_t> begins(batch.tensors.size(), 0);
  for (Rank rank = 0; rank < batch.group->size(); ++rank) {
    for (size_t t = 0; t < batch.tensors.size(); ++t) {
      const BatchTensor& tensor = batch.tensors[t];
      const int64_t count = tensor.rows[static_cast<size_t>(rank)] * tensor.row_count;
      load(batch, tensor, begins[t], count, to);
      begins[t] += count;
      to += static_cast<size_t>(count) * element;
    }
  }
}

void unpack_output(const Batch& batch, const std::byte* from) {
  const size_t element = element_bytes(batch);
  if (batch.response.what != Collective::kAllgather) {
    for (const BatchTensor& tensor : batch.tensors) {
      const int64_t count =
          has_rows(batch.response.what) ? result_rows(batch, tensor) * tensor.row_count : count_of(tensor);
      store(tensor, 0, from, static_cast<size_t>(count) * element, element);
      from += static_cast<size_t>(count) * element;
    }
    return;
  }
  // Source-major: all tensors' parts of rank 0, then of rank 1, …
  std::vector<int64_t> begins(batch.tensors.size(), 0);
  for (Rank rank = 0; rank < batch.group->size(); ++rank) {
    for (size_t t = 0; t < batch.tensors.size(); ++t) {
      const BatchTensor& tensor = batch.tensors[t];
      const int64_t count = tensor.rows[static_cast<size_t>(rank)] * tensor.row_count;
      store(tensor, begins[t], from, static_cast<size_t>(count) * element, element);
      begins[t] += count;
      from += static_cast<size_t>(count) * element;
    }
  }
}

void fill_pieces(Batch& batch) {
  for (const BatchTensor& tensor : batch.tensors) {
    backend::Piece& piece = batch.pieces.emplace_back();
    piece.count = count_of(tensor);
    if (!tensor.ref) continue;  // joined: identity elements
    piece.input = tensor.ref->tensor().input;
    piece.output = tensor.ref->tensor().output;
  }
}

// Is this the submission the response answers? The coordinator compared it, so only its kind can be wrong.
bool is_meant(const std::optional<TensorRef>& ref, const control::Response& response) {
  if (!ref) return false;
  const control::Request& request = ref->tensor().request;
  return request.what == response.what && request.dtype == response.dtype;
}

}  // namespace

std::byte* FusionBuffer::reserve(size_t bytes) {
  if (bytes > capacity_ || memory_ == nullptr) {  // also for no bytes: null is for no memory
    memory_.reset();
    memory_ = allocate_host(bytes);
    capacity_ = memory_ == nullptr ? 0 : bytes;
  }
  return static_cast<std::byte*>(memory_.get());
}

Result<Batch> plan_batch(control::Response response, std::shared_ptr<const Group> group,
                         const Operations& operations) {
  Batch batch;
  batch.response = std::move(response);
  batch.group = std::move(group);
  const std::vector<Rank>& joined = batch.response.joined;
  const Rank me = batch.group->members[static_cast<size_t>(batch.group->me)];
  const bool has_joined = std::find(joined.begin(), joined.end(), me) != joined.end();
  for (const control::Entry& entry : batch.response.entries) {
    BatchTensor tensor;
    // A rank that has joined may have submitted the name since: that submission belongs to a later round.
    if (!has_joined) tensor.ref = operations.lookup(batch.response.process_set, entry.name);
    if (!has_joined && !is_meant(tensor.ref, batch.response)) {
      return Status(Code::kInternal, "the coordinator started tensor " + entry.name +
                                         ", which this rank did not submit like that; please report it.");
    }
    tensor.shape = tensor.ref ? tensor.ref->tensor().request.shape : entry.shape;
    tensor.rows = entry.rows;
    tensor.row_count = tensor.shape.empty() ? 1 : product(tensor.shape, 1);
    batch.tensors.push_back(std::move(tensor));
  }
  batch.is_fused = batch.tensors.size() > 1;
  fill_spec(batch);
  return batch;
}

// The gate is the same on every rank, whatever is in place there.
void make_cancellable(Batch& batch, const backend::Backend& backend) {
  if (batch.spec.what != Collective::kAllreduce || batch.goes_by_pieces) return;
  const size_t bytes = static_cast<size_t>(batch.spec.count) * element_bytes(batch);
  batch.is_gated = bytes == 0;  // without elements there are no messages that would keep ranks together
  if (batch.is_fused || batch.is_gated || backend.spares_input(*batch.group, batch.spec)) return;
  batch.is_gated = bytes > kCopiedBytes;
  if (batch.is_gated || !batch.tensors.front().ref) return;
  const Tensor& only = batch.tensors.front().ref->tensor();
  batch.is_copied = only.input == only.output;
}

bool needs_packing(const Batch& batch) {
  if (batch.response.what == Collective::kBarrier || batch.goes_by_pieces) return false;
  return batch.is_fused || batch.is_copied || is_prescaled(batch) || !batch.tensors.front().ref;
}

Status pack(Batch& batch, FusionBuffer& fusion) {
  if (batch.response.what == Collective::kBarrier) return Status::ok();
  if (Status s = allocate_outputs(batch); !s.is_ok()) return s;
  if (batch.goes_by_pieces) {
    fill_pieces(batch);
    return Status::ok();
  }
  if (!needs_packing(batch)) {
    const Tensor& only = batch.tensors.front().ref->tensor();
    batch.input = static_cast<const std::byte*>(only.input);
    batch.output = static_cast<std::byte*>(only.output);
    return Status::ok();
  }
  const size_t in_bytes = static_cast<size_t>(input_count(batch)) * element_bytes(batch);
  const size_t out_bytes = static_cast<size_t>(output_count(batch)) * element_bytes(batch);
  const bool is_in_place = batch.response.what == Collective::kAllreduce;
  const size_t out_begin = is_in_place ? 0 : (in_bytes + 63) / 64 * 64;
  std::byte* buffer = fusion.reserve(is_in_place ? in_bytes : out_begin + out_bytes);
  if (buffer == nullptr) return no_memory(batch, input_count(batch) + output_count(batch));
  pack_input(batch, buffer);
  batch.input = buffer;
  batch.output = buffer + out_begin;
  return Status::ok();
}

void unpack(Batch& batch) {
  if (needs_packing(batch)) unpack_output(batch, batch.output);
}

}  // namespace rueda::runtime
