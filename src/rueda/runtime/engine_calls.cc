// What other threads ask of the engine: operations, process sets, the timeline.

#include <algorithm>
#include <cstdint>

#include "rueda/runtime/engine.h"

namespace rueda::runtime {
namespace {

constexpr char kAddSetName[] = "process_set.add";
constexpr char kRemoveSetName[] = "process_set.remove";

// Fills in even splits where the caller gave none; where there are none, check_request says so.
Status resolve_splits(control::Request& request, Rank group_size) {
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

}  // namespace

Result<int64_t> Engine::submit(std::vector<Tensor> tensors, bool will_wait) {
  for (Tensor& tensor : tensors) {
    const std::shared_ptr<const Group> group = groups_.find(tensor.request.process_set);
    if (group && group->is_member()) {
      if (Status s = resolve_splits(tensor.request, group->size()); !s.is_ok()) return s;
    }
    const std::vector<Rank>* members = group ? &group->members : nullptr;
    if (Status s = control::check_request(tensor.request, members, session_.me, session_.size());
        !s.is_ok()) {
      return s;
    }
  }
  return operations_.submit(std::move(tensors), !will_wait);
}

Result<int64_t> Engine::submit_set_change(control::Request request) {
  request.what = Collective::kBarrier;
  Tensor tensor;
  tensor.request = std::move(request);
  std::vector<Tensor> tensors;
  tensors.push_back(std::move(tensor));
  return operations_.submit(std::move(tensors));
}

Result<int32_t> Engine::add_process_set(std::vector<Rank> ranks) {
  std::sort(ranks.begin(), ranks.end());
  control::Request request;
  request.kind = control::Request::Kind::kAddSet;
  request.name = kAddSetName;
  request.set_ranks = std::move(ranks);
  const Result<int64_t> handle = submit_set_change(std::move(request));
  if (!handle.is_ok()) return handle.status();
  const Status status = operations_.wait(handle.value(), std::nullopt);
  const int32_t id = operations_.find(handle.value())->set_id;
  operations_.release(handle.value());
  if (!status.is_ok()) return status;
  return id;
}

Status Engine::remove_process_set(int32_t id) {
  control::Request request;
  request.kind = control::Request::Kind::kRemoveSet;
  request.name = kRemoveSetName;
  request.set_id = id;
  const Result<int64_t> handle = submit_set_change(std::move(request));
  if (!handle.is_ok()) return handle.status();
  const Status status = operations_.wait(handle.value(), std::nullopt);
  operations_.release(handle.value());
  return status;
}

Status Engine::start_timeline(const std::string& path, bool mark_cycles, bool goes_on) {
  const std::lock_guard lock(timeline_mutex_);
  if (path == timeline_path_) return Status::ok();
  if (!timeline_path_.empty()) timeline_->stop();
  timeline_path_.clear();
  trace::TimelineOptions options{
      .path = path, .rank = session_.me, .mark_cycles = mark_cycles, .goes_on = goes_on, .forward = {}};
  if (!is_coordinator()) {
    options.forward = [this](Bytes batch) {
      {
        const std::lock_guard batch_lock(trace_mutex_);
        trace_batches_.push_back(std::move(batch));
      }
      wake();
    };
  }
  if (Status s = timeline_->start(options); !s.is_ok()) return s;
  timeline_path_ = path;
  return Status::ok();
}

void Engine::stop_timeline() {
  const std::lock_guard lock(timeline_mutex_);
  if (timeline_path_.empty()) return;  // by now it may be another epoch's
  timeline_->stop();
  timeline_path_.clear();
}

}  // namespace rueda::runtime
