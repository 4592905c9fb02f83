// What other threads ask of the engine: operations and process sets.

#include <algorithm>
#include <cstdint>

#include "rueda/runtime/engine.h"

namespace rueda::runtime {
namespace {

constexpr char kAddSetName[] = "process_set.add";
constexpr char kRemoveSetName[] = "process_set.remove";

}  // namespace

// wait(): until the operation is done. Before, this thread does the engine's work for it if it can.
template <class F>
Status Engine::wait_for(const std::shared_ptr<Operation>& operation, std::optional<Deadline> deadline,
                        const F& wait) {
  if (!operation || operation->is_done) return wait();
  const Nanos begin = monotonic_now();
  const bool is_recorded = !operation->is_waited_for;  // if not, the record of the call says enough
  operations_.about_to_wait(*operation);
  driver_.help(operation->is_done, deadline);
  Status status = wait();
  const Nanos end = monotonic_now();
  counters_.meters->waited_for_operation(end - begin);
  if (is_recorded && recording_.is_on()) recording_.waited(begin, end);
  return status;
}

Status Engine::wait(int64_t handle, std::optional<Deadline> deadline) {
  return wait_for(operations_.find(handle), deadline, [&] { return operations_.wait(handle, deadline); });
}

Status Engine::wait_on_stream(int64_t handle, void* stream, std::optional<Deadline> deadline) {
  size_t ended = 0;
  return wait_all_on_stream(std::span(&handle, 1), stream, deadline, ended);
}

Status Engine::wait_all_on_stream(std::span<const int64_t> handles, void* stream,
                                  std::optional<Deadline> deadline, size_t& ended) {
  Operations::StreamWaits waits(operations_, handles, stream);
  for (ended = 0; ended < handles.size(); ++ended) {
    const auto wait_for_one = [&] { return waits.wait(ended, deadline); };
    if (Status status = wait_for(waits.operation(ended), deadline, wait_for_one); !status.is_ok())
      return status;
  }
  return Status::ok();
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
