#include "rueda/runtime/submissions.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "rueda/control/check_request.h"
#include "rueda/runtime/at_once.h"
#include "rueda/runtime/backends.h"
#include "rueda/runtime/session.h"

namespace rueda::runtime {
namespace {

// Fills in even splits if the caller gave none. If the rows cannot be split evenly,
// check_request() refuses them.
Status resolve_splits(control::TensorRequest& request, Rank group_size) {
  if (request.what != Collective::kAlltoall || !request.splits.empty() || request.shape.empty())
    return Status::ok();
  if (request.shape[0] % group_size != 0) return Status::ok();
  const int64_t rows = request.shape[0] / group_size;
  if (rows > INT32_MAX) {
    return {Code::kInvalidArgument, "alltoall of tensor " + request.name + " gives each rank " +
                                        std::to_string(rows) +
                                        " rows; splits are 32-bit, so fold rows into another dimension."};
  }
  request.splits.assign(static_cast<size_t>(group_size), static_cast<int32_t>(rows));
  return Status::ok();
}

bool keeps_shape(Collective what) { return what == Collective::kAllreduce || what == Collective::kBroadcast; }

// A backend may write the result before it has read all of the input.
Status check_memory(const Tensor& tensor, const void* given_input, const void* given_output) {
  if (!keeps_shape(tensor.request.what)) return Status::ok();
  const auto input = reinterpret_cast<uintptr_t>(given_input);
  const auto output = reinterpret_cast<uintptr_t>(given_output);
  const uintptr_t bytes = tensor.bytes();
  const bool is_apart = input + bytes <= output || output + bytes <= input;
  if (input == 0 || output == 0 || bytes == 0 || input == output || is_apart) return Status::ok();
  return {Code::kInvalidArgument, "The output of tensor " + tensor.request.name +
                                      " overlaps its input in part; pass the input itself, or memory that "
                                      "does not overlap it."};
}

// How large the caller's output is. Other ranks decide it where they may give more rows or fewer; then this
// is its size if all give as many as this one.
size_t output_bytes(const Tensor& tensor, Rank group_size) {
  const size_t bytes = tensor.bytes();
  const auto n = static_cast<size_t>(group_size);
  if (tensor.request.what == Collective::kAllgather) return n * bytes;
  if (tensor.request.what == Collective::kReducescatter) return (bytes + n - 1) / n;
  return bytes;
}

bool is_on_one_host(const Group& group, const std::vector<PeerInfo>& all) {
  return std::ranges::all_of(
      group.members, [&](Rank member) { return are_on_one_host(all, group.members.front(), member); });
}

// Refuses what the settings of this job exclude. Small tensors travel between hosts as they are.
Status settle_wire(control::TensorRequest& request, const Config& config, bool on_one_host) {
  if (request.wire == Wire::kExact) return Status::ok();
  if (const std::string why = why_no_wire(config, request.wire); !why.empty())
    return {Code::kUnsupported, "Tensor " + request.name + ": " + why};
  request.wire = control::effective_wire(request, request.wire, on_one_host);
  return Status::ok();
}

}  // namespace

// Completes what the caller has described, and refuses what this rank alone can refuse.
Status Submissions::complete(Tensor& tensor) const {
  control::TensorRequest& request = tensor.request;
  const Session& session = parts_.session;
  const std::shared_ptr<const Group> group = parts_.groups.find(request.process_set);
  if (group && group->is_member()) {
    if (Status s = resolve_splits(request, group->size()); !s.is_ok()) return s;
    tensor.output_bytes = output_bytes(tensor, group->size());
  }
  const Wire wanted = tensor.takes_wire_setting ? session.config.wire : request.wire;
  const bool on_one_host = wanted != Wire::kExact && group && is_on_one_host(*group, *session.all);
  if (tensor.takes_wire_setting) request.wire = control::effective_wire(request, wanted, on_one_host);
  tensor.is_only_read = request.what == Collective::kBroadcast && request.root == session.me;
  if (Status s =
          control::check_request(request, group ? &group->members : nullptr, session.me, session.size());
      !s.is_ok())
    return s;
  return settle_wire(request, session.config, on_one_host);
}

Result<int64_t> Submissions::submit(std::vector<Tensor> tensors, bool will_wait) {
  for (Tensor& tensor : tensors) {
    if (Status s = complete(tensor); !s.is_ok()) return s;
    if (Status s = check_memory(tensor, tensor.input, tensor.output); !s.is_ok()) return s;
    if (Status s = parts_.ready_streams.accept(tensor); !s.is_ok()) return s;
    parts_.observer.check_numbers(tensor, tensor.input);
  }
  return parts_.operations.submit(std::move(tensors), !will_wait);
}

// Operations holds its mutex. A timeline shows what becomes of each tensor, so the engine then does it.
bool Submissions::end_now(Operation& operation) const {
  const std::span tensors(operation.tensors);
  if (parts_.trace.wants_details() || !std::ranges::all_of(tensors, may_end_at_once)) return false;
  if (!std::ranges::all_of(tensors, end_at_once)) return false;
  for (const Tensor& tensor : tensors)
    if (tensor.request.memory == MemoryKind::kDevice)
      operation.events.push_back(parts_.ready_streams.end_of(tensor));
  const Tensor& first = tensors.front();
  CallTrace call{.what = first.request.what,
                 .process_set = first.request.process_set,
                 .name = first.request.name,
                 .tensors = static_cast<int32_t>(tensors.size()),
                 .bytes = 0};
  for (const Tensor& tensor : tensors)
    if (tensor.request.what != Collective::kBarrier) call.bytes += static_cast<int64_t>(tensor.bytes());
  call.submitted = call.ordered = call.started = operation.submitted;
  call.ended = monotonic_now();
  call.algorithm = "copy";
  parts_.counters.algorithm.store("copy", std::memory_order_relaxed);
  count(parts_.counters.batches);
  count(parts_.counters.tensors, call.tensors);
  count(parts_.counters.bytes, call.bytes);
  parts_.counters.meters->called(call);
  if (parts_.trace.is_recording()) parts_.trace.record(call);
  return true;
}

Result<int64_t> Submissions::prepare(Tensor tensor) {
  if (Status s = complete(tensor); !s.is_ok()) return s;
  return parts_.operations.prepare(std::move(tensor));
}

Result<int64_t> Submissions::start(const PreparedStart& start) {
  if (const std::shared_ptr<const Tensor> tensor = parts_.operations.prepared(start.number)) {
    const control::TensorRequest& request = tensor->request;
    if (!parts_.groups.find(request.process_set))  // it was removed since
      return control::check_request(request, nullptr, parts_.session.me, parts_.session.size());
    if (start.input == nullptr && tensor->bytes() > 0 && request.what != Collective::kBarrier)
      return Status(Code::kInvalidArgument, "The input of tensor " + request.name + " is null.");
    if (Status s = check_memory(*tensor, start.input, start.output); !s.is_ok()) return s;
    if (Status s = parts_.ready_streams.accept(*tensor, start.ready); !s.is_ok()) return s;
    parts_.observer.check_numbers(*tensor, start.input);
  }
  return parts_.operations.start(start);
}

}  // namespace rueda::runtime
