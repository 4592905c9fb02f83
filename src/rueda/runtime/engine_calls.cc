// What other threads ask of the engine: operations and process sets.

#include <algorithm>
#include <cstdint>

#include "rueda/control/check_request.h"
#include "rueda/runtime/engine.h"

namespace rueda::runtime {
namespace {

constexpr char kAddSetName[] = "process_set.add";
constexpr char kRemoveSetName[] = "process_set.remove";

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
Status check_memory(const Tensor& tensor) {
  if (!keeps_shape(tensor.request.what)) return Status::ok();
  const auto input = reinterpret_cast<uintptr_t>(tensor.input);
  const auto output = reinterpret_cast<uintptr_t>(tensor.output);
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

}  // namespace

Result<int64_t> Engine::submit(std::vector<Tensor> tensors, bool will_wait) {
  for (Tensor& tensor : tensors) {
    const std::shared_ptr<const Group> group = groups_.find(tensor.request.process_set);
    if (group && group->is_member()) {
      if (Status s = resolve_splits(tensor.request, group->size()); !s.is_ok()) return s;
      tensor.output_bytes = output_bytes(tensor, group->size());
    }
    const std::vector<Rank>* members = group ? &group->members : nullptr;
    if (Status s = control::check_request(tensor.request, members, session_.me, session_.size());
        !s.is_ok()) {
      return s;
    }
    if (Status s = check_memory(tensor); !s.is_ok()) return s;
    const control::TensorRequest& request = tensor.request;
    tensor.is_only_read = request.what == Collective::kBroadcast && request.root == session_.me;
    observer_.check_numbers(tensor);
  }
  return operations_.submit(std::move(tensors), !will_wait);
}

Engine::Wait Engine::help(int64_t handle, std::optional<Deadline> deadline) {
  const std::shared_ptr<Operation> operation = operations_.find(handle);
  if (!operation || operation->is_done) return {};
  const Wait wait{.begin = monotonic_now(), .is_recorded = !operation->is_waited_for};
  driver_.help(operation->is_done, deadline);
  return wait;
}

void Engine::note_wait(const Wait& wait) {
  if (wait.begin == 0) return;
  const Nanos end = monotonic_now();
  counters_.meters->waited_for_operation(end - wait.begin);
  if (wait.is_recorded && recording_.is_on()) recording_.waited(wait.begin, end);
}

Status Engine::wait(int64_t handle, std::optional<Deadline> deadline) {
  const Wait wait = help(handle, deadline);
  Status status = operations_.wait(handle, deadline);
  note_wait(wait);
  return status;
}

Status Engine::wait_on_stream(int64_t handle, void* stream, std::optional<Deadline> deadline) {
  const Wait wait = help(handle, deadline);
  Status status = operations_.wait_on_stream(handle, stream, deadline);
  note_wait(wait);
  return status;
}

Result<int32_t> Engine::add_process_set(std::vector<Rank> ranks) {
  std::sort(ranks.begin(), ranks.end());
  return change_process_sets({.name = kAddSetName, .what = control::AddSet{std::move(ranks)}});
}

Status Engine::remove_process_set(int32_t id) {
  return change_process_sets({.name = kRemoveSetName, .what = control::RemoveSet{id}}).status();
}

Result<int32_t> Engine::change_process_sets(control::SetChange change) {
  const Result<int64_t> handle = operations_.submit(std::move(change));
  if (!handle.is_ok()) return handle.status();
  const Status status = operations_.wait(handle.value(), std::nullopt);
  const int32_t id = operations_.find(handle.value())->set_id;
  operations_.release(handle.value());
  if (!status.is_ok()) return status;
  return id;
}

}  // namespace rueda::runtime
