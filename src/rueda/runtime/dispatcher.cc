#include "rueda/runtime/dispatcher.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "rueda/runtime/dispatcher_item.h"

namespace rueda::runtime {
namespace {

using Origin = DispatchItem::Origin;

// How many responses may overtake one whose backend is busy: enough to keep other backends at work.
constexpr size_t kLookAhead = 16;

void mark_started(const Batch& batch, bool is_started) {
  for (const BatchTensor& tensor : batch.tensors)
    if (tensor.ref) tensor.ref->tensor().is_started = is_started;
}

}  // namespace

Dispatcher::Dispatcher(Rank me, Operations& operations, Groups& groups, backend::BackendTable& backends,
                       TraceSink& trace, EngineCounters& counters, cuda::Devices* devices)
    : me_(me),
      operations_(operations),
      groups_(groups),
      backends_(backends),
      trace_(trace),
      counters_(counters),
      devices_(devices) {}

Dispatcher::~Dispatcher() = default;

// Ranks outside a process set count its calls too, so that all ranks have the same count.
void Dispatcher::enqueue(control::Response response) {
  if (auto* bucket = std::get_if<control::Bucket>(&response))
    return enqueue(
        std::make_unique<Item>(share(std::move(*bucket)), Origin::kNegotiated, generation_, next_order_++));
  enqueue(std::make_unique<Item>(std::move(response)));
}

void Dispatcher::enqueue_planned(control::SharedBucket bucket, int64_t number) {
  enqueue(std::make_unique<Item>(std::move(bucket), Origin::kPlanned, generation_,
                                 static_cast<uint64_t>(number)));
}

void Dispatcher::enqueue_discarded(control::Bucket bucket, int64_t number, std::vector<int32_t> arrivals) {
  auto item = std::make_unique<Item>(share(std::move(bucket)), Origin::kDiscarded, generation_,
                                     static_cast<uint64_t>(number));
  item->arrivals = std::move(arrivals);
  enqueue(std::move(item));
}

void Dispatcher::enqueue(std::unique_ptr<Item> item) {
  item->is_recorded = item->is_call() && item->origin != Origin::kDiscarded;
  if (item->is_recorded) item->ordered = monotonic_now();
  if (is_idle()) item->started = item->ordered;  // the backend takes it in this turn
  queue_.push_back(std::move(item));
}

bool Dispatcher::has_room_for(int64_t number) const {
  if (!queue_.empty()) return false;
  if (running_.empty()) return true;
  const Item& last = *running_.back();
  return !last.must_run_alone() && last.backend->has_room(static_cast<uint64_t>(number));
}

bool Dispatcher::progress() {
  bool moved = false;
  const bool has_work = !running_.empty() || has_launched_;
  for (size_t i = 0; has_work && i < backends_.all().size(); ++i)
    if (!backends_.all()[i]->is_idle()) moved = backends_.all()[i]->progress(done_) || moved;
  has_moved_ = has_moved_ || moved;
  if (moved) note_movement();
  for (const backend::Done& done : std::exchange(done_, {})) {
    const auto at = std::ranges::find(running_, done.id, [](const auto& item) { return item->id; });
    RUEDA_CHECK(at != running_.end(), "a backend finished a call that was not running");
    const std::unique_ptr<Item> item = std::move(*at);
    running_.erase(at);
    finish(*item, done);
    moved = true;
  }
  if (has_launched_) look_at_devices();
  return start_what_fits() || moved;
}

// Only buckets of plans start before all ranks have come.
void Dispatcher::note_movement() {
  Nanos now = 0;
  for (const auto& item : running_) {
    if (item->origin != Origin::kPlanned) continue;
    if (now == 0) now = monotonic_now();
    item->moved(now);
  }
}

// What was launched is done here, and nobody may wait for it on the host. The other ranks learn only from
// this one that its device has failed.
void Dispatcher::look_at_devices() {
  for (const auto& backend : backends_.all()) {
    const Status status = backend->device_failure();
    if (failure_.is_ok() && !status.is_ok())
      failure_ = {status.code, "The device of this rank has failed: " + status.why};
  }
}

bool Dispatcher::waits_on_memory() const {
  return !running_.empty() &&
         std::ranges::all_of(running_, [](const auto& item) { return item->backend->waits_on_memory(); });
}

bool Dispatcher::is_in_world() const {
  const auto is_of_world = [](const auto& item) { return item->is_call() && item->bucket->process_set == 0; };
  return std::ranges::any_of(running_, is_of_world) || std::ranges::any_of(queue_, is_of_world);
}

bool Dispatcher::start_what_fits() {
  bool moved = false;
  waits_for_device_ = false;
  while (failure_.is_ok() && start_one()) moved = true;
  return moved;
}

// Starts the first response whose backend has room. No response overtakes another one of the same backend, or
// one that runs alone.
bool Dispatcher::start_one() {
  const size_t window = std::min(queue_.size(), kLookAhead);
  std::vector<const backend::Backend*>& full = full_;
  full.clear();
  for (size_t i = 0; i < window; ++i) {
    Item& item = *queue_[i];
    if (is_held_up(item)) return false;
    const bool is_alone = item.must_run_alone();
    if (is_alone && (i > 0 || !running_.empty())) return false;
    const bool is_mine_to_run = item.batch || (item.is_call() && is_mine(*item.bucket));
    if (is_mine_to_run && !item.batch && !make_batch_of(item)) return false;
    if (is_mine_to_run && must_wait_for_memory(item, i)) return false;
    if (is_mine_to_run && item.backend != nullptr) {
      const bool is_known = std::ranges::find(full, item.backend) != full.end();
      const bool has_room = item.backend->has_room(item.order);
      if (!is_known && !has_room) full.push_back(item.backend);
      if (is_alone ? !full.empty() : full.size() == backends_.all().size()) return false;
      if (is_known || !has_room) continue;
    }
    std::unique_ptr<Item> next = std::move(queue_[i]);
    queue_.erase(queue_.begin() + static_cast<ptrdiff_t>(i));
    if (is_mine_to_run)
      start(std::move(next));
    else if (!next->is_call())
      handle_notice(*next->notice);
    return true;
  }
  return false;
}

// A bucket that is cancelled uses its tensors until it ends, and a later call may have the same tensors.
// Once this rank has said how far it is in a plan, no bucket of the plan may start.
bool Dispatcher::is_held_up(const Item& item) const {
  if (item.origin == Origin::kDiscarded) return false;
  if (is_paused_ && item.origin == Origin::kPlanned) return true;
  return std::ranges::any_of(running_, [](const auto& running) { return running->is_ending_bucket(); });
}

// Tensors that share memory with others keep their place in the queue. So what is earlier in the global order
// never waits for what is later, and ranks cannot wait for one another.
bool Dispatcher::must_wait_for_memory(const Item& item, size_t place) {
  for (const BatchTensor& tensor : item.batch->tensors) {
    if (!tensor.ref || !tensor.ref->operation->shares_memory.load(std::memory_order_acquire)) continue;
    if (place > 0) return true;
    const Operations::Turn turn = operations_.turn_of(*tensor.ref);
    waits_for_device_ = turn == Operations::Turn::kAfterDevice;
    if (turn != Operations::Turn::kNow) return true;
  }
  return false;
}

bool Dispatcher::is_mine(const control::Bucket& bucket) const {
  const std::shared_ptr<const Group> group = groups_.find(bucket.process_set);
  return group != nullptr && group->is_member();
}

bool Dispatcher::make_batch_of(Item& item) {
  Result<Batch> made = make_batch(item.bucket, groups_.find(item.bucket->process_set), operations_,
                                  item.origin == Origin::kDiscarded);
  if (!made.is_ok()) {
    failure_ = made.status();
    return false;
  }
  const Batch& batch = item.batch.emplace(std::move(made).value());
  item.backend = backends_.choose(*batch.group, batch.spec, batch.memory);
  return true;
}

void Dispatcher::handle_notice(const control::Response& notice) {
  const auto* failure = std::get_if<control::Failure>(&notice);
  const auto* joined = std::get_if<control::Joined>(&notice);
  const auto* added = std::get_if<control::SetAdded>(&notice);
  const auto* removed = std::get_if<control::SetRemoved>(&notice);
  if (added != nullptr) groups_.add(added->id, added->ranks);
  if (removed != nullptr) groups_.remove(removed->id);
  const Status status = failure != nullptr ? Status(failure->code, failure->error) : Status::ok();
  control::for_each_answer(notice, me_, [&](int32_t process_set, const std::string& name) {
    const std::optional<TensorRef> ref = operations_.lookup(process_set, name);
    if (!ref) return;  // this rank never submitted it
    if (failure != nullptr && trace_.wants_details() && ref->has_tensor()) {
      const control::TensorRequest& request = ref->tensor().request;
      trace_.record(TensorTrace{.name = name,
                                .operation = operation_code(request.what, request.op),
                                .submitted = ref->operation->submitted,
                                .failed = monotonic_now()});
    }
    if (joined != nullptr) {
      ref->operation->last_joined = joined->last;
      ref->operation->tag = joined->tag;
    }
    if (added != nullptr) ref->operation->set_id = added->id;
    operations_.finish(*ref, status);
  });
}

void Dispatcher::start(std::unique_ptr<Item> owner) {
  Item& item = *owner;
  Batch& batch = *item.batch;
  if (item.backend == nullptr) return fail_unsupported(batch);
  const bool is_discarded = item.origin == Origin::kDiscarded;
  item.id = next_call_++;
  if (item.is_recorded && trace_.wants_details()) item.messages = &trace_;
  if (item.is_recorded && item.started == 0) item.started = monotonic_now();
  if (const Status prepared = prepare_batch(batch, devices_); !prepared.is_ok()) {
    failure_ = prepared;  // the others have started: this rank alone cannot back out
    return;
  }
  const backend::Call call{.id = item.id,
                           .order = item.order,
                           .group = batch.group.get(),
                           .spec = batch.spec,
                           .segments = batch.segments,
                           .prescale = is_reduction(item.bucket->what) ? item.bucket->prescale : 1.0,
                           .may_be_cancelled = item.origin != Origin::kNegotiated,
                           .generation = item.generation,
                           .activities = item.is_recorded ? &item : nullptr};
  item.is_cancelled = is_discarded;
  mark_started(batch, true);
  running_.push_back(std::move(owner));
  if (is_discarded) return item.cancellation().discard(call, item.arrivals);
  count(counters_.batches);
  count(counters_.tensors, static_cast<int64_t>(batch.tensors.size()));
  count(counters_.bytes, batch.spec.count * static_cast<int64_t>(size_of(batch.spec.dtype)));
  item.backend->start(call);
}

// Every rank comes to the same verdict.
void Dispatcher::fail_unsupported(const Batch& batch) {
  const std::string& why = backends_.why_no_devices();
  const Status status{Code::kUnsupported, "no backend of this job can use the memory of tensor " +
                                              batch.bucket->entries.front().name +
                                              (why.empty() ? "" : " (" + why + ")") +
                                              "; copy the tensor to host memory first."};
  if (trace_.wants_details()) record_tensors(batch, std::nullopt, false);
  for (const BatchTensor& tensor : batch.tensors)
    if (tensor.ref) operations_.finish(*tensor.ref, status);
}

void Dispatcher::finish(Item& item, const backend::Done& done) {
  counters_.algorithm.store(done.how.data(), std::memory_order_relaxed);
  // A refusal that follows from the request is the same on every rank. Any other failure happened on this
  // rank alone, and the channels are out of step.
  const Status& status = done.status;
  const bool is_everywhere = status.code == Code::kUnsupported || status.code == Code::kInvalidArgument;
  if (!status.is_ok() && !is_everywhere) {
    failure_ = status;  // the operations end with the epoch, whose status names the culprit
    if (done.segment) failure_.why = "Tensor " + item.bucket->entries[*done.segment].name + ": " + status.why;
    return;
  }
  if (item.is_cancelled) return;
  if (done.event != nullptr) has_launched_ = true;
  if (item.is_recorded) {
    const CallTrace call = item.record_of(done, monotonic_now());
    counters_.meters->called(call);
    if (trace_.is_recording()) trace_.record(call);
    if (trace_.wants_details())
      record_tensors(*item.batch, call_tag(call.generation, call.order), status.is_ok());
  }
  const Batch& batch = *item.batch;
  for (const BatchTensor& tensor : batch.tensors)
    if (tensor.ref) operations_.finish(*tensor.ref, status, done.event);
}

std::vector<control::BucketUnderWay> Dispatcher::pause() {
  is_paused_ = true;
  std::vector<control::BucketUnderWay> buckets;
  for (const auto& item : running_)
    if (item->is_open_bucket())
      buckets.push_back(
          {.bucket = static_cast<int64_t>(item->order), .sent = item->cancellation().pause(item->id)});
  return buckets;
}

void Dispatcher::resume() {
  is_paused_ = false;
  for (const auto& item : running_)
    if (item->is_open_bucket()) item->cancellation().resume(item->id);
}

void Dispatcher::cancel(int64_t number, std::span<const int32_t> arrivals) {
  if (!failure_.is_ok()) return;  // the epoch ends
  const auto is_it = [&](const std::unique_ptr<Item>& item) {
    return item->is_open_bucket() && item->order == static_cast<uint64_t>(number);
  };
  if (const auto waiting = std::ranges::find_if(queue_, is_it); waiting != queue_.end()) {
    queue_.erase(waiting);
    return;
  }
  const auto at = std::ranges::find_if(running_, is_it);
  RUEDA_CHECK(at != running_.end(), "a bucket that all ranks have started is not cancelled");
  Item& item = **at;
  mark_started(*item.batch, false);
  item.is_cancelled = true;
  item.cancellation().cancel(item.id, arrivals);
}

void Dispatcher::abort() {
  queue_.clear();
  running_.clear();
}

// A rank that has joined takes part without a tensor, and takes no result.
void Dispatcher::record_tensors(const Batch& batch, std::optional<uint32_t> call, bool is_ok) {
  const Nanos failed = call ? 0 : monotonic_now();
  for (size_t i = 0; i < batch.tensors.size(); ++i) {
    const std::optional<TensorRef>& ref = batch.tensors[i].ref;
    const bool has_result = is_ok && ref.has_value();
    const std::string shape = has_result ? shape_string(ref->tensor().result_shape) : std::string();
    trace_.record(TensorTrace{.name = batch.bucket->entries[i].name,
                              .dtype = has_result ? name_of(ref->tensor().request.dtype) : std::string_view(),
                              .shape = shape,
                              .operation = operation_code(batch.bucket->what, batch.bucket->op),
                              .submitted = ref ? ref->operation->submitted : 0,
                              .call = call.value_or(0),
                              .failed = failed});
  }
}

}  // namespace rueda::runtime
