// The part of the backend that puts a call on the stream, part by part: tensors are packed, NCCL enqueues its
// groups, results are unpacked.
#include <algorithm>
#include <bit>
#include <memory>
#include <utility>

#include "rueda/backend/nccl/nccl.h"
#include "rueda/base/log.h"

namespace rueda::backend {
namespace {

// What is put into the queue of the stream, at most.
constexpr size_t kEntriesOfPacking = 10;  // tables, kernels of packing, scaling and unpacking, the event
constexpr size_t kEntriesOfLevel = 10;  // NCCL's kernel and what it puts around it, the kernels of an Adasum

}  // namespace

nccl::ResultCode NcclBackend::issue(const nccl::Step& step) {
  const nccl::Functions& call = nccl();
  const nccl::CommHandle comm = communicator_->handle();
  void* const stream = gpu_->stream().handle();
  switch (step.function) {
    case nccl::Function::kAllReduce:
      return call.AllReduce(step.send, step.receive, step.count, step.type, step.op, comm, stream);
    case nccl::Function::kBroadcast:
      return call.Broadcast(step.send, step.receive, step.count, step.type, step.peer, comm, stream);
    case nccl::Function::kReduce:
      return call.Reduce(step.send, step.receive, step.count, step.type, step.op, step.peer, comm, stream);
    case nccl::Function::kAllGather:
      return call.AllGather(step.send, step.receive, step.count, step.type, comm, stream);
    case nccl::Function::kReduceScatter:
      return call.ReduceScatter(step.send, step.receive, step.count, step.type, step.op, comm, stream);
    case nccl::Function::kSend:
      return call.Send(step.send, step.count, step.type, step.peer, comm, stream);
    case nccl::Function::kRecv:
      return call.Recv(step.receive, step.count, step.type, step.peer, comm, stream);
  }
  return nccl::kInternalError;
}

Status NcclBackend::launch() {
  const cuda::ScopedContext context(*gpu_->device());
  if (!context.status().is_ok()) return context.status();
  const Group& group = *call_.group;
  if (is_adasum() && needed_ == 0) {
    needed_ = bytes_for_adasum();
    if (needed_ > agreed_[key_of(group)]) return agree(needed_);
  }
  part_ = call_;
  part_.segments = call_.segments.subspan(parts_done_);
  if (call_.spec.what == Collective::kAllreduce && part_.segments.size() > 1)
    part_.segments = part_.segments.first(part_size());
  part_entries_ = entries_of_part();
  if (state_ != State::kWaiting && queued_ + entries_ + part_entries_ > kMostQueued) {
    if (entries_ > 0)  // of the parts before this one
      if (const Status status = keep_enqueued(); !status.is_ok()) return status;
    state_ = State::kWaiting;
    return Status::ok();
  }
  entries_ += part_entries_;
  scaling_ = nccl::scaling_of(call_.spec, call_.prescale);
  state_ = State::kLaunching;
  at_work_->is_launching = true;
  call_.note(Activity::kPack);
  if (const Status status = gpu_->packing().load(part_, scaling_.before); !status.is_ok()) return status;
  call_.note(Activity::kTransfer);
  const std::span<const Run> runs = gpu_->packing().runs();
  is_gathering_ = false;
  if (is_adasum()) return begin_adasum();
  if (by_levels_ == nullptr) return launch(nccl::steps_of(call_.spec, runs, group.me, group.size()));
  const Group& inside = by_levels_->inside;
  return launch(nccl::reducing_steps_of(call_.spec, runs.front(), inside.me, inside.size()));
}

// How many entries the part will take in the queue of the stream, at most.
size_t NcclBackend::entries_of_part() const {
  size_t levels = by_levels_ != nullptr ? 2 : 1;
  if (is_adasum()) levels = static_cast<size_t>(std::bit_width(static_cast<uint32_t>(call_.group->size())));
  return events_of(part_.segments).size() + kEntriesOfPacking + levels * kEntriesOfLevel;
}

// What is enqueued gives room when it has ended.
Status NcclBackend::keep_enqueued() {
  Result<std::shared_ptr<cuda::Event>> event = gpu_->record();
  if (!event.is_ok()) return event.status();
  keep(std::make_shared<CudaEvent>(std::vector{std::move(event).value()}));
  entries_ = 0;
  return Status::ok();
}

// How many of the tensors of an allreduce that are left NCCL reduces at once; the same on every member.
size_t NcclBackend::part_size() const {
  const size_t bytes = communicator_->pack_bytes();
  const size_t share = is_adasum() ? nccl::Adasum::kPackedShare : 1;
  return std::min(packed_at_once(call_.spec.dtype, part_.segments, bytes / share), kMostTensors);
}

// The most that a part of the call needs; more than 0.
size_t NcclBackend::bytes_for_adasum() {
  size_t most = 1;
  part_ = call_;
  for (size_t done = 0; done < call_.segments.size(); done += part_.segments.size()) {
    part_.segments = call_.segments.subspan(done);
    part_.segments = part_.segments.first(part_size());
    most = std::max(most, nccl::Adasum::bytes_for(part_));
  }
  return most;
}

// The first Adasum, and any that needs more memory than those before: it is reserved, and the members tell
// one another how much they have. If one has too little, all of them stage this call.
Status NcclBackend::agree(size_t bytes) {
  if (adasum_ == nullptr) adasum_ = std::make_unique<nccl::Adasum>(*gpu_);
  nccl::Introduction mine;
  mine.pack_bytes = static_cast<int64_t>(adasum_->reserve(bytes));
  state_ = State::kAgreeing;
  meetings_.begin_for(*call_.group, mine);
  return Status::ok();
}

Status NcclBackend::decide_adasum() {
  const Group& group = *call_.group;
  size_t& agreed = agreed_[key_of(group)];
  agreed = nccl::pack_bytes_of(meetings_.introductions());
  if (needed_ <= agreed) return launch();
  if (group.me == 0 && !std::exchange(has_warned_, true))
    RUEDA_LOG(kWarning, "An Adasum in " + nccl::describe(group) + " needs " + std::to_string(needed_ >> 20) +
                            " MiB of GPU memory on each rank, and one has less left: such calls go through "
                            "host memory.");
  hand_over("Adasum has no memory on a GPU.");
  return Status::ok();
}

Status NcclBackend::begin_adasum() {
  if (const Status status = adasum_->begin(part_); !status.is_ok()) return status;
  return launch(adasum_->exchange());
}

// NCCL has enqueued an exchange of the tree, if there was one. True: another one is on its way.
Result<bool> NcclBackend::climb() {
  if (!adasum_->is_combined()) {
    if (const Status status = adasum_->combine(); !status.is_ok()) return status;
    if (!adasum_->is_combined()) {
      if (const Status status = launch(adasum_->exchange()); !status.is_ok()) return status;
      return true;
    }
  }
  if (const Status status = adasum_->finish(scaling_.after); !status.is_ok()) return status;
  scaling_.after = {};
  return false;
}

Status NcclBackend::launch(std::span<const nccl::Step> steps) {
  if (steps.empty()) return Status::ok();
  nccl::ResultCode first = nccl().GroupStart();
  for (const nccl::Step& step : steps) {
    const nccl::ResultCode issued = issue(step);
    if (first == nccl::kSuccess && issued != nccl::kInProgress) first = issued;
  }
  const nccl::ResultCode ended = nccl().GroupEnd();
  return options_.library->check(first == nccl::kSuccess ? ended : first, "the launch of a group by NCCL",
                                 communicator_->handle());
}

// NCCL has enqueued the group of a part.
Status NcclBackend::complete() {
  const cuda::ScopedContext context(*gpu_->device());
  if (!context.status().is_ok()) return context.status();
  if (by_levels_ != nullptr && !is_gathering_) return reduce_between();
  if (is_adasum()) {
    const Result<bool> goes_on = climb();
    if (!goes_on.is_ok()) return goes_on.status();
    if (goes_on.value()) return Status::ok();
  }
  call_.note(Activity::kUnpack);
  if (const Status status = gpu_->packing().store(part_, scaling_.after); !status.is_ok()) return status;
  parts_done_ += part_.segments.size();
  if (parts_done_ < call_.segments.size()) return launch();
  const auto launched = gpu_->launched(*options_.devices, call_.segments);
  if (!launched.is_ok()) return launched.status();
  keep(launched.value());
  if (adasum_ != nullptr) adasum_->enqueued_until(launched.value());
  end(Status::ok(), launched.value());
  return Status::ok();
}

}  // namespace rueda::backend
