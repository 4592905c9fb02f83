#include "rueda/runtime/dispatcher.h"

#include <algorithm>
#include <optional>
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

class Dispatcher::Item final : public backend::ActivitySink {
 public:
  Item(control::SharedResponse said, Way why, uint16_t number, std::vector<int32_t> sent)
      : response(std::move(said)), way(why), generation(number), arrivals(std::move(sent)) {}

  void begin(backend::Activity activity) override {
    end_activity();
    emit(TraceKind::kBegin, name_of(activity));
    is_open_ = true;
  }
  void end_activity() {
    if (std::exchange(is_open_, false)) emit(TraceKind::kEnd, {});
  }
  [[nodiscard]] bool is_call() const { return response->kind == control::Response::Kind::kRun; }
  // Process sets come and go, errors are told and barriers are passed when all before them is done; so runs
  // what may be taken back.
  [[nodiscard]] bool must_run_alone() const {
    return !is_call() || way != Way::kAgreed || response->what == Collective::kBarrier;
  }

  control::SharedResponse response;
  Way way = Way::kAgreed;
  uint16_t generation = 0;
  std::vector<int32_t> arrivals;        // kDrained
  std::optional<Batch> batch;           // once it was looked at
  backend::Backend* backend = nullptr;  // that runs it
  backend::CallId id = 0;
  bool is_taken_back = false;  // it has no result
  TraceSink* trace = nullptr;  // null: not traced

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
    return transfer_name(response->what);
  }
  void emit(TraceKind kind, std::string_view name) {
    if (trace == nullptr) return;
    const Nanos now = monotonic_now();
    for (const control::Entry& entry : response->entries)
      trace->emit({.kind = kind, .when = now, .track = entry.name, .name = name});
  }

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

void Dispatcher::enqueue(control::SharedResponse response, Way way, std::vector<int32_t> arrivals) {
  if (way != Way::kDrained && response->kind == control::Response::Kind::kRun && is_traced(*response)) {
    const Nanos now = monotonic_now();
    for (const control::Entry& entry : response->entries) {
      trace_.emit(
          {.kind = TraceKind::kBegin, .when = now, .track = entry.name, .name = operation_name(*response)});
      trace_.emit({.kind = TraceKind::kBegin, .when = now, .track = entry.name, .name = "QUEUE"});
    }
  }
  queue_.push_back(std::make_unique<Item>(std::move(response), way, generation_, std::move(arrivals)));
}

bool Dispatcher::progress() {
  bool moved = false;
  for (size_t i = 0; !running_.empty() && i < backends_.all().size(); ++i)
    if (!backends_.all()[i]->is_idle()) moved = backends_.all()[i]->progress(done_) || moved;
  for (const backend::Done& done : std::exchange(done_, {})) {
    const auto at = std::ranges::find(running_, done.id, [](const auto& item) { return item->id; });
    RUEDA_CHECK(at != running_.end(), "a backend finished a call that was not running");
    const std::unique_ptr<Item> item = std::move(*at);
    running_.erase(at);
    finish(*item, done);
    moved = true;
  }
  return start_what_fits() || moved;
}

bool Dispatcher::waits_on_memory() const {
  return !running_.empty() &&
         std::ranges::all_of(running_, [](const auto& item) { return item->backend->waits_on_memory(); });
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
    Item& item = *queue_[i];
    const bool is_alone = item.must_run_alone();
    if (is_alone && (i > 0 || !running_.empty())) return false;
    const bool is_mine_to_run = item.batch || (item.is_call() && is_mine(*item.response));
    if (is_mine_to_run && !item.batch && !plan(item)) return false;
    if (is_mine_to_run && item.backend != nullptr) {
      const bool is_known = std::ranges::find(full, item.backend) != full.end();
      const bool has_room = item.backend->room() > 0;
      if (!is_known && !has_room) full.push_back(item.backend);
      if (is_alone ? !full.empty() : full.size() == backends_.all().size()) return false;
      if (is_known || !has_room) continue;
    }
    std::unique_ptr<Item> next = std::move(queue_[i]);
    queue_.erase(queue_.begin() + static_cast<ptrdiff_t>(i));
    if (is_mine_to_run)
      start(std::move(next));
    else if (!next->is_call())
      handle_notice(*next->response);
    return true;
  }
  return false;
}

bool Dispatcher::is_mine(const control::Response& response) const {
  const std::shared_ptr<const Group> group = groups_.find(response.process_set);
  return group != nullptr && group->is_member();
}

bool Dispatcher::plan(Item& item) {
  Result<Batch> planned = plan_batch(item.response, groups_.find(item.response->process_set), operations_,
                                     item.way == Way::kDrained);
  if (!planned.is_ok()) {
    failure_ = planned.status();
    return false;
  }
  const Batch& batch = item.batch.emplace(std::move(planned).value());
  item.backend = backends_.choose(*batch.group, batch.spec, batch.memory);
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

void Dispatcher::start(std::unique_ptr<Item> owner) {
  Item& item = *owner;
  Batch& batch = *item.batch;
  if (item.backend == nullptr) return fail_unsupported(batch);
  const bool is_drained = item.way == Way::kDrained;
  item.id = next_call_++;
  if (!is_drained && is_traced(*item.response)) item.trace = &trace_;
  if (!is_drained) mark_queue_end(batch);
  if (const Status prepared = prepare_batch(batch); !prepared.is_ok()) {
    failure_ = prepared;  // the others have started: this rank alone cannot back out
    return;
  }
  const backend::Call call{.id = item.id,
                           .group = batch.group.get(),
                           .spec = batch.spec,
                           .segments = batch.segments,
                           .prescale = is_reduction(item.response->what) ? item.response->prescale : 1.0,
                           .memory = batch.memory,
                           .may_be_taken_back = item.way != Way::kAgreed,
                           .generation = item.generation,
                           .activities = item.trace == nullptr ? nullptr : &item};
  item.is_taken_back = is_drained;
  running_.push_back(std::move(owner));
  if (is_drained) return item.backend->drain(call, item.arrivals);
  count(counters_.batches);
  count(counters_.tensors, static_cast<int64_t>(batch.tensors.size()));
  count(counters_.bytes, batch.spec.count * static_cast<int64_t>(size_of(batch.spec.dtype)));
  item.backend->start(call);
}

// Every rank comes to the same verdict.
void Dispatcher::fail_unsupported(const Batch& batch) {
  const Status status{Code::kUnsupported, "no backend of this job takes tensor " +
                                              batch.response->entries.front().name +
                                              " where it lies; copy it to host memory first."};
  mark_queue_end(batch);
  mark_ends(batch, false);
  for (const BatchTensor& tensor : batch.tensors)
    if (tensor.ref) operations_.finish(*tensor.ref, status);
}

void Dispatcher::finish(Item& item, const backend::Done& done) {
  counters_.way.store(done.how.data(), std::memory_order_relaxed);
  // A refusal that follows from the request is the same on every rank; anything else happened here alone, and
  // the lanes are out of step.
  const Status& status = done.status;
  const bool is_everywhere = status.code == Code::kUnsupported || status.code == Code::kInvalidArgument;
  if (!status.is_ok() && !is_everywhere) {
    failure_ = status;  // the operations end with the epoch, whose status names the culprit
    return;
  }
  if (item.is_taken_back) return;
  item.end_activity();
  const Batch& batch = *item.batch;
  mark_ends(batch, status.is_ok());
  for (const BatchTensor& tensor : batch.tensors)
    if (tensor.ref) operations_.finish(*tensor.ref, status);
}

std::vector<int32_t> Dispatcher::pause() {
  return running_.empty() ? std::vector<int32_t>() : running_.front()->backend->pause();
}

void Dispatcher::resume() {
  if (!running_.empty()) running_.front()->backend->resume();
}

void Dispatcher::take_back(std::span<const int32_t> arrivals) {
  if (!failure_.is_ok()) return;  // the epoch ends
  RUEDA_CHECK(running_.size() == 1 && queue_.empty(),
              "only a planned batch, which runs alone, is taken back");
  Item& item = *running_.front();
  item.end_activity();
  mark_ends(*item.batch, false);
  item.is_taken_back = true;
  item.backend->take_back(arrivals);
}

void Dispatcher::abort() {
  queue_.clear();
  running_.clear();
}

void Dispatcher::mark_queue_end(const Batch& batch) {
  if (!is_traced(*batch.response)) return;
  const Nanos now = monotonic_now();
  for (const control::Entry& entry : batch.response->entries)
    trace_.emit({.kind = TraceKind::kEnd, .when = now, .track = entry.name});
}

// A rank that has joined takes part without a tensor: its bar ends without a dtype and a shape.
void Dispatcher::mark_ends(const Batch& batch, bool is_ok) {
  if (!is_traced(*batch.response)) return;
  const Nanos now = monotonic_now();
  for (size_t i = 0; i < batch.tensors.size(); ++i) {
    const std::optional<TensorRef>& ref = batch.tensors[i].ref;
    const bool has_result = is_ok && ref.has_value();
    const std::string shape = has_result ? shape_string(ref->tensor().result_shape) : std::string();
    trace_.emit({.kind = TraceKind::kEnd,
                 .when = now,
                 .track = batch.response->entries[i].name,
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
