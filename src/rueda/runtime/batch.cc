#include "rueda/runtime/batch.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "rueda/control/row_counts.h"

namespace rueda::runtime {
namespace {

int64_t product(const std::vector<int64_t>& dims, size_t from = 0) {
  int64_t result = 1;
  for (size_t i = from; i < dims.size(); ++i) result *= dims[i];
  return result;
}

int64_t count_of(const BatchTensor& tensor) { return product(tensor.shape); }

size_t element_bytes(const Batch& batch) { return size_of(batch.bucket->dtype); }

int64_t rows_total(const BatchTensor& tensor, size_t begin, size_t count) {
  return std::accumulate(tensor.rows.begin() + static_cast<ptrdiff_t>(begin),
                         tensor.rows.begin() + static_cast<ptrdiff_t>(begin + count), int64_t{0});
}

// How many rows the result has on this rank.
int64_t result_rows(const Batch& batch, const BatchTensor& tensor) {
  const auto n = static_cast<size_t>(batch.group->size());
  const auto me = static_cast<size_t>(batch.group->me);
  switch (batch.bucket->what) {
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

void count_rows(BatchTensor& tensor) {
  tensor.counts.clear();
  for (const int64_t rows : tensor.rows) tensor.counts.push_back(rows * tensor.row_count);
}

void fill_counts(Batch& batch) {
  schedule::Spec& spec = batch.spec;
  if (!has_rows(spec.what)) {
    for (const BatchTensor& tensor : batch.tensors) spec.count += count_of(tensor);
    return;
  }
  for (const BatchTensor& tensor : batch.tensors) {
    spec.counts.resize(tensor.counts.size(), 0);
    for (size_t i = 0; i < tensor.counts.size(); ++i) spec.counts[i] += tensor.counts[i];
  }
  if (spec.what == Collective::kReducescatter) {
    spec.count = std::accumulate(spec.counts.begin(), spec.counts.end(), int64_t{0});
  }
}

void fill_spec(Batch& batch) {
  const control::Bucket& bucket = *batch.bucket;
  schedule::Spec& spec = batch.spec;
  spec = spec_of(bucket, batch.group->size());
  spec.tuning = bucket.tuning;
  if (!bucket.joined.empty()) spec.wire = Wire::kExact;  // who has joined keeps no residuals
  if (bucket.what == Collective::kBroadcast) {
    const std::vector<Rank>& members = batch.group->members;
    spec.root = static_cast<Rank>(std::find(members.begin(), members.end(), bucket.root) - members.begin());
  }
  fill_counts(batch);
  if (spec.op == ReduceOp::kAdasum) {
    for (const BatchTensor& tensor : batch.tensors) spec.segment_counts.push_back(count_of(tensor));
  }
}

Status of_tensor(const Batch& batch, const Status& why) {
  return {why.code, "Tensor " + batch.name(0) + ": " + why.why};
}

Status no_memory(const Batch& batch, int64_t count) {
  return {Code::kUnavailable,
          "no memory for " + std::to_string(static_cast<size_t>(count) * element_bytes(batch)) +
              " bytes of tensor " + batch.name(0) + "; use smaller tensors or a machine with more memory."};
}

Status allocate_output(const Batch& batch, Tensor& tensor, cuda::Devices* devices) {
  const int64_t count = product(tensor.result_shape);
  const size_t bytes = static_cast<size_t>(count) * element_bytes(batch);
  if (tensor.memory.kind != MemoryKind::kDevice) {
    tensor.allocated = allocate_host(bytes);
    if (tensor.allocated == nullptr) return no_memory(batch, count);
  } else {
    RUEDA_CHECK(devices != nullptr, "no backend accepts device memory in a job without devices");
    const Result<std::shared_ptr<const cuda::Device>> device = devices->get(tensor.memory.device);
    if (!device.is_ok()) return of_tensor(batch, device.status());
    Result<OwnedMemory> made = allocate_on(device.value(), bytes);
    if (!made.is_ok()) return of_tensor(batch, made.status());
    tensor.allocated = std::move(made).value();
  }
  tensor.output = tensor.allocated.get();
  return Status::ok();
}

Status allocate_outputs(Batch& batch, cuda::Devices* devices) {
  for (BatchTensor& tensor : batch.tensors) {
    if (!tensor.ref) continue;
    Tensor& mine = tensor.ref->tensor();
    mine.result_shape = mine.request.shape;
    if (has_rows(batch.bucket->what)) mine.result_shape[0] = result_rows(batch, tensor);
    if (batch.bucket->what == Collective::kAlltoall) {
      const auto n = static_cast<size_t>(batch.group->size());
      mine.received_splits.resize(n);
      for (size_t src = 0; src < n; ++src) {
        mine.received_splits[src] =
            static_cast<int32_t>(tensor.rows[src * n + static_cast<size_t>(batch.group->me)]);
      }
    }
    if (mine.output != nullptr || batch.bucket->what == Collective::kBarrier) continue;
    if (Status s = allocate_output(batch, mine, devices); !s.is_ok()) return s;
  }
  return Status::ok();
}

// A rank that has joined has no tensors, but runs the call in memory of the same kind as the others.
Memory memory_of(const Batch& batch) {
  const auto mine = std::ranges::find_if(batch.tensors, [](const auto& tensor) { return !!tensor.ref; });
  if (mine == batch.tensors.end()) return {.kind = batch.bucket->memory};
  const Memory& memory = mine->ref->tensor().memory;
  return {.kind = memory.kind, .device = memory.device};
}

// Whether this is the submission that the bucket answers. The coordinator has compared the submissions, so
// it is enough to look at their kind.
bool is_meant(const std::optional<TensorRef>& ref, const control::Bucket& bucket) {
  if (!ref || !ref->has_tensor()) return false;
  const control::TensorRequest& request = ref->tensor().request;
  return request.what == bucket.what && request.dtype == bucket.dtype;
}

// Of the input of each member; where these differ, of the mean.
int64_t input_bytes(const Batch& batch) {
  const std::vector<int64_t>& counts = batch.spec.counts;
  const int64_t elements =
      counts.empty() ? batch.spec.count
                     : std::accumulate(counts.begin(), counts.end(), int64_t{0}) / batch.group->size();
  return elements * static_cast<int64_t>(size_of(batch.spec.dtype));
}

}  // namespace

schedule::Spec spec_of(const control::Terms& terms, Rank group_size) {
  schedule::Spec spec;
  spec.what = terms.what;
  spec.dtype = terms.dtype;
  spec.op = terms.op == ReduceOp::kAverage ? ReduceOp::kSum : terms.op;
  spec.wire = terms.wire;
  spec.scale.factor = terms.postscale;
  spec.scale.divisor = terms.op == ReduceOp::kAverage ? group_size : 1;
  return spec;
}

CallTrace trace_of(const Batch& batch) {
  const control::Bucket& bucket = *batch.bucket;
  CallTrace call{.what = bucket.what,
                 .process_set = bucket.process_set,
                 .name = batch.name(0),
                 .tensors = static_cast<int32_t>(bucket.entries.size()),
                 .bytes = input_bytes(batch)};
  for (const BatchTensor& tensor : batch.tensors) {
    if (!tensor.ref) continue;
    call.submitted = std::max(call.submitted, tensor.ref->operation->submitted);
    call.is_waited_for = tensor.ref->operation->is_waited_for;
  }
  return call;
}

// A rank that has joined takes part without a tensor, and takes no result.
void record_tensors(TraceSink& trace, const Batch& batch, std::optional<uint32_t> call, bool is_ok) {
  const Nanos failed = call ? 0 : monotonic_now();
  for (size_t i = 0; i < batch.tensors.size(); ++i) {
    const std::optional<TensorRef>& ref = batch.tensors[i].ref;
    const bool has_result = is_ok && ref.has_value();
    const std::string shape = has_result ? shape_string(ref->tensor().result_shape) : std::string();
    trace.record(TensorTrace{.name = batch.name(i),
                             .dtype = has_result ? name_of(ref->tensor().request.dtype) : std::string_view(),
                             .shape = shape,
                             .operation = operation_code(batch.bucket->what, batch.bucket->op),
                             .submitted = ref ? ref->operation->submitted : 0,
                             .call = call.value_or(0),
                             .failed = failed});
  }
}

std::vector<std::optional<TensorRef>> find_tensors(const control::Bucket& bucket, const Group& group,
                                                   const Operations& operations) {
  const Rank me = group.members[static_cast<size_t>(group.me)];
  // A rank that has joined may have submitted the name since: that submission belongs to a later round.
  if (std::ranges::find(bucket.joined, me) != bucket.joined.end()) return {};
  std::vector<std::optional<TensorRef>> tensors;
  for (const control::Entry& entry : bucket.entries)
    tensors.push_back(operations.lookup(bucket.process_set, entry.name));
  return tensors;
}

Batch make_batch(control::SharedBucket bucket, std::shared_ptr<const Group> group,
                 std::span<const std::optional<TensorRef>> tensors) {
  Batch batch;
  batch.bucket = std::move(bucket);
  batch.group = std::move(group);
  for (size_t i = 0; i < batch.bucket->entries.size(); ++i) {
    const control::Entry& entry = batch.bucket->entries[i];
    const bool is_mine = i < tensors.size() && tensors[i] && tensors[i]->has_tensor();
    BatchTensor& tensor = batch.tensors.emplace_back();
    tensor.shape = is_mine ? tensors[i]->tensor().request.shape : entry.shape;
    tensor.rows = entry.rows;
    tensor.row_count = tensor.shape.empty() ? 1 : product(tensor.shape, 1);
    if (has_rows(batch.bucket->what)) count_rows(tensor);
  }
  fill_spec(batch);
  return batch;
}

Status set_rows(Batch& batch, std::span<const int64_t> told) {
  Result<std::vector<std::vector<int64_t>>> rows = control::rows_of(*batch.bucket, told);
  if (!rows.is_ok()) return rows.status();
  for (size_t i = 0; i < batch.tensors.size(); ++i) {
    batch.tensors[i].rows = std::move(rows.value()[i]);
    count_rows(batch.tensors[i]);
  }
  fill_spec(batch);
  return Status::ok();
}

Status take_tensors(Batch& batch, std::span<std::optional<TensorRef>> tensors) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!is_meant(tensors[i], *batch.bucket))
      return {Code::kInternal, "the coordinator started tensor " + batch.bucket->entries[i].name +
                                   ", which this rank has not submitted in this form; please report it."};
    batch.tensors[i].ref = std::exchange(tensors[i], std::nullopt);
    batch.tensors[i].shape = batch.tensors[i].ref->tensor().request.shape;
  }
  batch.memory = memory_of(batch);
  return Status::ok();
}

Status prepare_batch(Batch& batch, cuda::Devices* devices) {
  if (batch.bucket->what == Collective::kBarrier) return Status::ok();
  if (Status s = allocate_outputs(batch, devices); !s.is_ok()) return s;
  for (const BatchTensor& tensor : batch.tensors) {
    backend::Segment& segment = batch.segments.emplace_back();
    segment.count = count_of(tensor);
    segment.counts = tensor.counts;
    segment.memory = batch.memory;
    if (!tensor.ref) continue;  // joined: identity elements
    segment.input = tensor.ref->tensor().input;
    segment.output = tensor.ref->tensor().output;
    segment.memory = tensor.ref->tensor().memory;
    const ReadyStream& stream = tensor.ref->tensor().ready_stream;
    if (stream.is_marked) segment.memory.checked = &stream.outcome;
  }
  return Status::ok();
}

}  // namespace rueda::runtime
