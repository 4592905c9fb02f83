#include "rueda/runtime/dispatcher.h"

#include <algorithm>
#include <utility>

namespace rueda::runtime {
namespace {

std::string_view operation_name(const control::Response& response) {
  if (response.kind == control::Response::Kind::kError) return "ERROR";
  if (response.op == ReduceOp::kAdasum && response.what == Collective::kAllreduce) return "ADASUM";
  return name_of(response.what);
}

std::string_view transfer_name(Collective what) {
  switch (what) {
    case Collective::kAllreduce:
      return "NATIVE_ALLREDUCE";
    case Collective::kAllgather:
      return "NATIVE_ALLGATHER";
    case Collective::kBroadcast:
      return "NATIVE_BCAST";
    case Collective::kAlltoall:
      return "NATIVE_ALLTOALL";
    case Collective::kReducescatter:
      return "NATIVE_REDUCESCATTER";
    default:
      return "NATIVE_BARRIER";
  }
}

}  // namespace

Dispatcher::Dispatcher(Rank me, Operations& operations, Groups& groups, backend::Backend& backend,
                       TraceSink& trace, EngineCounters& counters)
    : me_(me),
      operations_(operations),
      groups_(groups),
      backend_(backend),
      trace_(trace),
      counters_(counters) {}

void Dispatcher::enqueue(control::Response response, Way way, std::vector<int32_t> arrivals) {
  if (way != Way::kDrained && response.kind == control::Response::Kind::kRun && is_traced(response)) {
    const Nanos now = monotonic_now();
    for (const control::Entry& entry : response.entries) {
      trace_.emit(
          {.kind = TraceKind::kBegin, .when = now, .track = entry.name, .name = operation_name(response)});
      trace_.emit({.kind = TraceKind::kBegin, .when = now, .track = entry.name, .name = "QUEUE"});
    }
  }
  queue_.push_back({.response = std::move(response),
                    .way = way,
                    .generation = generation_,
                    .arrivals = std::move(arrivals)});
}

bool Dispatcher::progress() {
  bool moved = false;
  if (running_) {
    moved = backend_.progress(done_);
    for (const backend::Done& done : std::exchange(done_, {})) {
      finish_running(done.status);
      moved = true;
    }
  }
  while (!running_ && failure_.is_ok() && start_next()) moved = true;
  return moved;
}

bool Dispatcher::start_next() {
  if (queue_.empty()) return false;
  Queued queued = std::move(queue_.front());
  queue_.pop_front();
  if (queued.response.kind != control::Response::Kind::kRun) {
    handle_notice(queued.response);
    return true;
  }
  std::shared_ptr<const Group> group = groups_.find(queued.response.process_set);
  if (!group || !group->is_member()) return true;
  if (queued.way == Way::kDrained)
    drain(std::move(queued), std::move(group));
  else
    run(std::move(queued), std::move(group));
  return true;
}

void Dispatcher::handle_notice(const control::Response& response) {
  using Kind = control::Response::Kind;
  if (response.kind == Kind::kSetAdded) groups_.add(response.set_id, response.set_ranks);
  if (response.kind == Kind::kSetRemoved) groups_.remove(response.set_id);
  const bool is_error = response.kind == Kind::kError;
  const Status status = is_error ? Status(response.code, response.error) : Status::ok();
  for (const control::Entry& entry : response.entries) {
    // An error answers the submissions it names; this rank may have submitted the name again since.
    const std::vector<Rank>& failed = entry.failed_ranks;
    if (is_error && std::find(failed.begin(), failed.end(), me_) == failed.end()) continue;
    const std::optional<TensorRef> ref = operations_.lookup(response.process_set, entry.name);
    if (!ref) continue;  // this rank never submitted it
    if (is_error && trace_.is_on()) {
      const Nanos now = monotonic_now();
      trace_.emit({.kind = TraceKind::kBegin, .when = now, .track = entry.name, .name = "ERROR"});
      trace_.emit({.kind = TraceKind::kEnd, .when = now, .track = entry.name});
    }
    ref->operation->last_joined = response.last_joined;
    ref->operation->tag = response.tag;
    ref->operation->set_id = response.set_id;
    operations_.finish(*ref, status);
  }
}

void Dispatcher::run(Queued queued, std::shared_ptr<const Group> group) {
  Result<Batch> planned = plan_batch(std::move(queued.response), std::move(group), operations_);
  if (!planned.is_ok()) {
    failure_ = planned.status();
    return;
  }
  Batch& batch = running_.emplace(std::move(planned).value());
  batch.goes_by_pieces =
      batch.spec.what == Collective::kAllreduce && backend_.takes_pieces(*batch.group, batch.spec);
  is_cancelled_ = false;
  if (queued.way == Way::kPlanned) make_cancellable(batch, backend_);
  mark(batch, TraceKind::kEnd, "QUEUE");
  const bool is_packed = needs_packing(batch);
  if (is_packed) mark(batch, TraceKind::kBegin, "MEMCPY_IN_FUSION_BUFFER");
  if (const Status packed = pack(batch, fusion_); !packed.is_ok()) {
    failure_ = packed;  // the others have started: this rank alone cannot back out
    return;
  }
  if (is_packed) mark(batch, TraceKind::kEnd, "MEMCPY_IN_FUSION_BUFFER");
  mark(batch, TraceKind::kBegin, transfer_name(batch.response.what));
  count(counters_.batches);
  count(counters_.tensors, static_cast<int64_t>(batch.tensors.size()));
  count(counters_.bytes, batch.spec.count * static_cast<int64_t>(size_of(batch.spec.dtype)));
  backend_.start({.id = next_call_++,
                  .group = batch.group.get(),
                  .spec = batch.spec,
                  .input = batch.input,
                  .output = batch.output,
                  .pieces = batch.pieces,
                  .prescale = batch.goes_by_pieces ? batch.response.prescale : 1.0,
                  .generation = queued.generation,
                  .is_gated = batch.is_gated});
}

void Dispatcher::drain(Queued queued, std::shared_ptr<const Group> group) {
  queued.response.joined = {me_};  // no tensors of this rank
  Result<Batch> planned = plan_batch(std::move(queued.response), std::move(group), operations_);
  if (!planned.is_ok()) {
    failure_ = planned.status();
    return;
  }
  Batch& batch = running_.emplace(std::move(planned).value());
  make_cancellable(batch, backend_);
  is_cancelled_ = true;
  backend_.drain({.id = next_call_++,
                  .group = batch.group.get(),
                  .spec = batch.spec,
                  .generation = queued.generation,
                  .is_gated = batch.is_gated},
                 std::move(queued.arrivals));
}

void Dispatcher::finish_running(const Status& status) {
  RUEDA_CHECK(running_.has_value(), "the backend finished a call that was not running");
  Batch batch = std::move(*running_);
  running_.reset();
  counters_.way.store(backend_.last_way().data(), std::memory_order_relaxed);
  // A refusal that follows from the request is the same on every rank; anything else happened here alone, and
  // the lanes are out of step.
  const bool is_everywhere = status.code == Code::kUnsupported || status.code == Code::kInvalidArgument;
  if (!status.is_ok() && !is_everywhere) {
    failure_ = status;  // the operations end with the epoch, whose status names the culprit
    return;
  }
  if (is_cancelled_) return;
  mark(batch, TraceKind::kEnd, transfer_name(batch.response.what));
  if (status.is_ok() && needs_packing(batch)) {
    mark(batch, TraceKind::kBegin, "MEMCPY_OUT_FUSION_BUFFER");
    unpack(batch);
    mark(batch, TraceKind::kEnd, "MEMCPY_OUT_FUSION_BUFFER");
  }
  mark_ends(batch, status.is_ok());
  for (const BatchTensor& tensor : batch.tensors)
    if (tensor.ref) operations_.finish(*tensor.ref, status);
}

void Dispatcher::cancel(std::span<const int32_t> arrivals) {
  if (!failure_.is_ok()) return;  // the epoch ends
  RUEDA_CHECK(running_.has_value() && queue_.empty(), "only a plan's bucket, which runs alone, is cancelled");
  mark(*running_, TraceKind::kEnd, transfer_name(running_->response.what));
  mark_ends(*running_, false);
  is_cancelled_ = true;
  backend_.cancel(arrivals);
}

void Dispatcher::abort() {
  queue_.clear();
  running_.reset();
}

void Dispatcher::mark(const Batch& batch, TraceKind kind, std::string_view activity) {
  if (!is_traced(batch.response)) return;
  const Nanos now = monotonic_now();
  for (const control::Entry& entry : batch.response.entries) {
    trace_.emit({.kind = kind,
                 .when = now,
                 .track = entry.name,
                 .name = kind == TraceKind::kEnd ? std::string_view() : activity});
  }
}

// A rank that has joined takes part without a tensor: its bar ends without a dtype and a shape.
void Dispatcher::mark_ends(const Batch& batch, bool is_ok) {
  if (!is_traced(batch.response)) return;
  const Nanos now = monotonic_now();
  for (size_t i = 0; i < batch.tensors.size(); ++i) {
    const std::optional<TensorRef>& ref = batch.tensors[i].ref;
    const bool has_result = is_ok && ref.has_value();
    const std::string shape = has_result ? shape_string(ref->tensor().result_shape) : std::string();
    trace_.emit({.kind = TraceKind::kEnd,
                 .when = now,
                 .track = batch.response.entries[i].name,
                 .args_dtype = has_result ? name_of(ref->tensor().request.dtype) : std::string_view(),
                 .args_shape = shape});
  }
}

// Ranks outside the process set hear of its responses too, and take no part.
bool Dispatcher::is_traced(const control::Response& response) const {
  if (!trace_.is_on() || response.what == Collective::kBarrier || response.what == Collective::kJoin)
    return false;
  const std::shared_ptr<const Group> group = groups_.find(response.process_set);
  return group != nullptr && group->is_member();
}

}  // namespace rueda::runtime
