// What other threads ask of the engine: operations and process sets.

#include <algorithm>
#include <cstdint>

#include "rueda/runtime/engine.h"

namespace rueda::runtime {
namespace {

constexpr char kAddSetName[] = "process_set.add";
constexpr char kRemoveSetName[] = "process_set.remove";

}  // namespace

Engine::Wait Engine::help(int64_t handle, std::optional<Deadline> deadline) {
  return help(operations_.find(handle), deadline);
}

Engine::Wait Engine::help(const std::shared_ptr<Operation>& operation, std::optional<Deadline> deadline) {
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

Status Engine::wait_all_on_stream(std::span<const int64_t> handles, void* stream,
                                  std::optional<Deadline> deadline, size_t& ended) {
  Operations::StreamWaits waits(operations_, handles, stream);
  for (ended = 0; ended < handles.size(); ++ended) {
    const Wait wait = help(waits.operation(ended), deadline);
    const Status status = waits.wait(ended, deadline);
    note_wait(wait);
    if (!status.is_ok()) return status;
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
