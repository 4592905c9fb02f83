#include "rueda/backend/nccl/launch.h"

#include <algorithm>
#include <bit>

namespace rueda::nccl {
namespace {

// What is put into the queue of the stream, at most.
constexpr size_t kEntriesOfPacking = 10;  // tables, kernels of packing, scaling and unpacking, the event
constexpr size_t kEntriesOfLevel = 10;  // NCCL's kernel and what it puts around it, the kernels of an Adasum

}  // namespace

void Launch::begin(const backend::Call& call, Communicator& communicator, const Levels* levels) {
  call_ = call;
  communicator_ = &communicator;
  levels_ = levels;
  parts_done_ = 0;
  adasum_bytes_ = is_adasum(call.spec) ? most_for_adasum() : 0;
  if (adasum_bytes_ > 0 && adasum_ == nullptr) adasum_ = std::make_unique<Adasum>(*gpu_);
  choose_part();
}

size_t Launch::reserve_for_adasum() { return adasum_->reserve(adasum_bytes_); }

// A call without tensors, as of a rank that has joined, has one part as well.
void Launch::choose_part() {
  part_ = call_;
  part_.segments = call_.segments.subspan(parts_done_);
  if (call_.spec.what == Collective::kAllreduce && part_.segments.size() > 1)
    part_.segments = part_.segments.first(part_size(part_.segments));
  size_t levels = levels_ != nullptr ? 2 : 1;
  if (is_adasum(call_.spec))
    levels = static_cast<size_t>(std::bit_width(static_cast<uint32_t>(call_.group->size())));
  part_entries_ = backend::events_of(part_.segments).size() + kEntriesOfPacking + levels * kEntriesOfLevel;
}

// How many of the tensors of an allreduce that are left NCCL reduces at once; the same on every member.
size_t Launch::part_size(std::span<const backend::Segment> left) const {
  const size_t share = is_adasum(call_.spec) ? Adasum::kPackedShare : 1;
  const size_t bytes = communicator_->pack_bytes() / share;
  return std::min(backend::packed_at_once(call_.spec.dtype, left, bytes), kMostTensors);
}

// The most that a part of the call needs; more than 0.
size_t Launch::most_for_adasum() const {
  size_t most = 1;
  backend::Call part = call_;
  for (size_t done = 0; done < call_.segments.size(); done += part.segments.size()) {
    const std::span<const backend::Segment> left = call_.segments.subspan(done);
    part.segments = left.first(part_size(left));
    most = std::max(most, Adasum::bytes_for(part));
  }
  return most;
}

Status Launch::reduce() {
  scaling_ = scaling_of(call_.spec, call_.prescale);
  call_.note(backend::Activity::kPack);
  if (const Status status = gpu_->packing().load(part_, scaling_.before); !status.is_ok()) return status;
  call_.note(backend::Activity::kTransfer);
  const std::span<const DeviceRun> runs = gpu_->packing().runs();
  if (is_adasum(call_.spec)) {
    const Status begun = adasum_->begin(part_);
    return begun.is_ok() ? exchange() : begun;
  }
  if (levels_ == nullptr)
    return launch(*communicator_, steps_of(call_.spec, runs, call_.group->me, call_.group->size()));
  const Group& inside = levels_->inside;
  return launch(*communicator_, reducing_steps_of(call_.spec, runs.front(), inside.me, inside.size()));
}

Status Launch::combine() { return has_exchange() ? adasum_->combine() : Status::ok(); }

// Members at one place of their hosts have equal shares.
Result<backend::Segment> Launch::share() {
  const DeviceRun& run = gpu_->packing().runs().front();
  const backend::ElementRange mine = share_of(run.count, levels_->inside.me, levels_->inside.size());
  if (mine.count == 0) return backend::Segment{};
  Result<std::shared_ptr<cuda::Event>> reduced = gpu_->record();
  if (!reduced.is_ok()) return reduced.status();
  reduced_ = std::move(reduced).value();
  std::byte* const share = run.output + static_cast<size_t>(mine.begin) * size_of(call_.spec.dtype);
  return backend::Segment{
      .input = share,
      .output = share,
      .count = mine.count,
      .memory = {
          .kind = MemoryKind::kDevice, .device = gpu_->device()->ordinal(), .ready = reduced_->handle()}};
}

Status Launch::gather() {
  const Group& inside = levels_->inside;
  return launch(*communicator_,
                gathering_steps_of(call_.spec, gpu_->packing().runs().front(), inside.me, inside.size()));
}

Status Launch::store() {
  if (is_adasum(call_.spec)) {
    if (const Status status = adasum_->finish(scaling_.after); !status.is_ok()) return status;
    scaling_.after = {};
  }
  call_.note(backend::Activity::kUnpack);
  if (const Status status = gpu_->packing().store(part_, scaling_.after); !status.is_ok()) return status;
  parts_done_ += part_.segments.size();
  if (parts_done_ < call_.segments.size())
    choose_part();
  else
    part_.segments = {};
  return Status::ok();
}

Result<std::shared_ptr<backend::CudaEvent>> Launch::end() {
  auto event = gpu_->launched(*devices_, call_.segments);
  if (event.is_ok() && adasum_ != nullptr) adasum_->enqueued_until(event.value());
  return event;
}

Result<std::shared_ptr<backend::CudaEvent>> Launch::mark() {
  Result<std::shared_ptr<cuda::Event>> event = gpu_->record();
  if (!event.is_ok()) return event.status();
  return std::make_shared<backend::CudaEvent>(std::vector{std::move(event).value()});
}

ResultCode Launch::issue(CommHandle comm, const Step& step) {
  const Functions& call = library_->call();
  void* const stream = gpu_->stream().handle();
  switch (step.function) {
    case Function::kAllReduce:
      return call.AllReduce(step.send, step.receive, step.count, step.type, step.op, comm, stream);
    case Function::kBroadcast:
      return call.Broadcast(step.send, step.receive, step.count, step.type, step.peer, comm, stream);
    case Function::kReduce:
      return call.Reduce(step.send, step.receive, step.count, step.type, step.op, step.peer, comm, stream);
    case Function::kAllGather:
      return call.AllGather(step.send, step.receive, step.count, step.type, comm, stream);
    case Function::kReduceScatter:
      return call.ReduceScatter(step.send, step.receive, step.count, step.type, step.op, comm, stream);
    case Function::kSend:
      return call.Send(step.send, step.count, step.type, step.peer, comm, stream);
    case Function::kRecv:
      return call.Recv(step.receive, step.count, step.type, step.peer, comm, stream);
  }
  return kInternalError;
}

Status Launch::launch(Communicator& communicator, std::span<const Step> steps) {
  if (steps.empty()) return Status::ok();
  ResultCode first = library_->call().GroupStart();
  for (const Step& step : steps) {
    const ResultCode issued = issue(communicator.handle(), step);
    if (first == kSuccess && issued != kInProgress) first = issued;
  }
  const ResultCode ended = library_->call().GroupEnd();
  return library_->check(first == kSuccess ? ended : first, "the launch of a group by NCCL",
                         communicator.handle());
}

}  // namespace rueda::nccl
