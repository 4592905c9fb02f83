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

// Responses that may overtake one whose backend is busy: enough to keep other backends at work.
constexpr size_t kLookAhead = 16;

}  // namespace

class Dispatcher::Running final : public backend::ActivitySink {
 public:
  Running(Batch batch, backend::Backend& backend, backend::CallId id, TraceSink* trace)
      : batch_(std::move(batch)), backend_(backend), id_(id), trace_(trace) {}

  void begin(backend::Activity activity) override {
    end_activity();
    emit(TraceKind::kBegin, name_of(activity));
    is_open_ = true;
  }
  void end_activity() {
    if (std::exchange(is_open_, false)) emit(TraceKind::kEnd, {});
  }

  [[nodiscard]] Batch& batch() { return batch_; }
  [[nodiscard]] backend::Backend& backend() { return backend_; }
  [[nodiscard]] backend::CallId id() const { return id_; }
  bool is_taken_back = false;  // it has no result

 private:
  [[nodiscard]] std::string_view name_of(backend::Activity activity) const {
    switch (activity) {
      case backend::Activity::kPack:
        return "MEMCPY_IN_FUSION_BUFFER";
      case backend::Activity::kUnpack:
        return "MEMCPY_OUT_FUSION_BUFFER";
      case backend::Activity::kTransfer:
        break;
    }
    return transfer_name(batch_.response.what);
  }
  void emit(TraceKind kind, std::string_view name) {
    if (trace_ == nullptr) return;
    const Nanos now = monotonic_now();
    for (const control::Entry& entry : batch_.response.entries)
      trace_->emit({.kind = kind, .when = now, .track = entry.name, .name = name});
  }

  Batch batch_;
  backend::Backend& backend_;
  backend::CallId id_;
  TraceSink* trace_;  // null: not traced
  bool is_open_ = false;
};

Dispatcher::Dispatcher(Rank me, Operations& operations, Groups& groups, backend::BackendTable& backends,
                       TraceSink& trace, EngineCounters& counters)
    : me_(me),
      operations_(operations),
      groups_(groups),
      backends_(backends),
      trace_(trace),
      counters_(counters) {}

Dispatcher::~Dispatcher() = default;

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
                    .arrivals = std::move(arrivals),
                    .batch = std::nullopt});
}

bool Dispatcher::progress() {
  bool moved = false;
  for (size_t i = 0; !running_.empty() && i < backends_.all().size(); ++i)
    if (!backends_.all()[i]->is_idle()) moved = backends_.all()[i]->progress(done_) || moved;
  for (const backend::Done& done : std::exchange(done_, {})) {
    const auto at = std::ranges::find(running_, done.id, [](const auto& running) { return running->id(); });
    RUEDA_CHECK(at != running_.end(), "a backend finished a call that was not running");
    const std::unique_ptr<Running> running = std::move(*at);
    running_.erase(at);
    finish(*running, done);
    moved = true;
  }
  return start_what_fits() || moved;
}

bool Dispatcher::waits_on_memory() const {
  return !running_.empty() && std::ranges::all_of(running_, [](const auto& running) {
    return running->backend().waits_on_memory();
  });
}

bool Dispatcher::start_what_fits() {
  bool moved = false;
  while (failure_.is_ok() && start_one()) moved = true;
  return moved;
}

// The first response whose backend has room. None overtakes another of its backend, nor one that runs alone.
bool Dispatcher::start_one() {
  const size_t window = std::min(queue_.size(), kLookAhead);
  std::vector<const backend::Backend*>& full = full_;
  full.clear();
  for (size_t i = 0; i < window; ++i) {
    Queued& queued = queue_[i];
    const bool is_alone = queued.must_run_alone();
    if (is_alone && (i > 0 || !running_.empty())) return false;
    const bool is_call = queued.about().kind == control::Response::Kind::kRun && is_mine(queued.about());
    if (is_call && !queued.batch && !plan(queued)) return false;
    if (is_call && queued.backend != nullptr) {
      const bool is_known = std::ranges::find(full, queued.backend) != full.end();
      if (!is_known && queued.backend->room() == 0) full.push_back(queued.backend);
      if (is_alone ? !full.empty() : full.size() == backends_.all().size()) return false;
      if (is_known || queued.backend->room() == 0) continue;
    }
    Queued next = std::move(queued);
    queue_.erase(queue_.begin() + static_cast<ptrdiff_t>(i));
    if (is_call)
      start(std::move(next));
    else if (next.response.kind != control::Response::Kind::kRun)
      handle_notice(next.response);
    return true;
  }
  return false;
}

bool Dispatcher::is_mine(const control::Response& response) const {
  const std::shared_ptr<const Group> group = groups_.find(response.process_set);
  return group != nullptr && group->is_member();
}

// Process sets come and go, errors are told and barriers are passed when all before them is done; so runs
// what may be taken back.
bool Dispatcher::Queued::must_run_alone() const {
  return about().kind != control::Response::Kind::kRun || way != Way::kAgreed ||
         about().what == Collective::kBarrier;
}

bool Dispatcher::plan(Queued& queued) {
  const bool is_drained = queued.way == Way::kDrained;
  std::shared_ptr<const Group> group = groups_.find(queued.response.process_set);
  Result<Batch> planned = plan_batch(std::move(queued.response), std::move(group), operations_, is_drained);
  if (!planned.is_ok()) {
    failure_ = planned.status();
    return false;
  }
  queued.batch = std::move(planned).value();
  const Batch& batch = *queued.batch;
  queued.backend = backends_.choose(*batch.group, batch.spec, batch.memory);
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

void Dispatcher::start(Queued queued) {
  if (queued.backend == nullptr) return fail_unsupported(*queued.batch);
  backend::Backend& backend = *queued.backend;
  TraceSink* trace = is_traced(queued.about()) ? &trace_ : nullptr;
  auto owner = std::make_unique<Running>(std::move(*queued.batch), backend, next_call_++, trace);
  Running& running = *owner;
  Batch& batch = running.batch();
  const bool is_drained = queued.way == Way::kDrained;
  if (!is_drained) mark_queue_end(batch);
  if (const Status prepared = prepare_batch(batch); !prepared.is_ok()) {
    failure_ = prepared;  // the others have started: this rank alone cannot back out
    return;
  }
  const backend::Call call{.id = running.id(),
                           .group = batch.group.get(),
                           .spec = batch.spec,
                           .segments = batch.segments,
                           .prescale = is_reduction(batch.response.what) ? batch.response.prescale : 1.0,
                           .memory = batch.memory,
                           .may_be_taken_back = queued.way != Way::kAgreed,
                           .generation = queued.generation,
                           .activities = trace == nullptr || is_drained ? nullptr : &running};
  running.is_taken_back = is_drained;
  running_.push_back(std::move(owner));
  if (is_drained) return backend.drain(call, queued.arrivals);
  count(counters_.batches);
  count(counters_.tensors, static_cast<int64_t>(batch.tensors.size()));
  count(counters_.bytes, batch.spec.count * static_cast<int64_t>(size_of(batch.spec.dtype)));
  backend.start(call);
}

// Every rank comes to the same verdict.
void Dispatcher::fail_unsupported(const Batch& batch) {
  const Status status{Code::kUnsupported, "no backend of this job takes tensor " +
                                              batch.response.entries.front().name +
                                              " where it lies; copy it to host memory first."};
  mark_queue_end(batch);
  mark_ends(batch, false);
  for (const BatchTensor& tensor : batch.tensors)
    if (tensor.ref) operations_.finish(*tensor.ref, status);
}

void Dispatcher::finish(Running& running, const backend::Done& done) {
  counters_.way.store(done.how.data(), std::memory_order_relaxed);
  // A refusal that follows from the request is the same on every rank; anything else happened here alone, and
  // the lanes are out of step.
  const Status& status = done.status;
  const bool is_everywhere = status.code == Code::kUnsupported || status.code == Code::kInvalidArgument;
  if (!status.is_ok() && !is_everywhere) {
    failure_ = status;  // the operations end with the epoch, whose status names the culprit
    return;
  }
  if (running.is_taken_back) return;
  running.end_activity();
  const Batch& batch = running.batch();
  mark_ends(batch, status.is_ok());
  for (const BatchTensor& tensor : batch.tensors)
    if (tensor.ref) operations_.finish(*tensor.ref, status);
}

std::vector<int32_t> Dispatcher::pause() {
  return running_.empty() ? std::vector<int32_t>() : running_.front()->backend().pause();
}

void Dispatcher::resume() {
  if (!running_.empty()) running_.front()->backend().resume();
}

void Dispatcher::take_back(std::span<const int32_t> arrivals) {
  if (!failure_.is_ok()) return;  // the epoch ends
  RUEDA_CHECK(running_.size() == 1 && queue_.empty(),
              "only a planned batch, which runs alone, is taken back");
  Running& running = *running_.front();
  running.end_activity();
  mark_ends(running.batch(), false);
  running.is_taken_back = true;
  running.backend().take_back(arrivals);
}

void Dispatcher::abort() {
  queue_.clear();
  running_.clear();
}

void Dispatcher::mark_queue_end(const Batch& batch) {
  if (!is_traced(batch.response)) return;
  const Nanos now = monotonic_now();
  for (const control::Entry& entry : batch.response.entries)
    trace_.emit({.kind = TraceKind::kEnd, .when = now, .track = entry.name});
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
  return is_mine(response);
}

}  // namespace rueda::runtime
