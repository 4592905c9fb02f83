#include "rueda/runtime/dispatcher.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "rueda/control/row_counts.h"
#include "rueda/runtime/dispatcher_item.h"

namespace rueda::runtime {
namespace {

using control::OrderAction;
using control::Ordered;
using control::Readiness;

control::SharedBucket share(control::Bucket bucket) {
  return std::make_shared<const control::Bucket>(std::move(bucket));
}

// Control counts messages by world ranks, a backend by the members of the group.
std::vector<int32_t> by_world_rank(std::span<const int32_t> by_member, const Group& group) {
  std::vector<int32_t> by_rank;
  for (size_t member = 0; member < by_member.size(); ++member) {
    const auto rank = static_cast<size_t>(group.members[member]);
    if (rank >= by_rank.size()) by_rank.resize(rank + 1, 0);
    by_rank[rank] = by_member[member];
  }
  return by_rank;
}

std::vector<int32_t> by_member(std::span<const int32_t> by_rank, const Group& group) {
  std::vector<int32_t> messages;
  for (const Rank member : group.members) {
    const auto rank = static_cast<size_t>(member);
    messages.push_back(rank < by_rank.size() ? by_rank[rank] : 0);
  }
  return messages;
}

void mark_started(const Batch& batch, bool is_started) {
  for (const BatchTensor& tensor : batch.tensors)
    if (tensor.ref) tensor.ref->tensor().is_started = is_started;
}

}  // namespace

Dispatcher::Dispatcher(Rank me, Operations& operations, Groups& groups, backend::BackendTable& backends,
                       ReadyStreams& ready_streams, TraceSink& trace, EngineCounters& counters,
                       cuda::Devices* devices)
    : me_(me),
      operations_(operations),
      groups_(groups),
      backends_(backends),
      ready_streams_(ready_streams),
      trace_(trace),
      counters_(counters),
      devices_(devices),
      order_(backends.all().size()) {}

Dispatcher::~Dispatcher() = default;

void Dispatcher::enqueue(control::Response response) {
  const Ordered& ordered = order_.enqueue(response);
  if (auto* bucket = std::get_if<control::Bucket>(&response))
    keep(ordered, std::make_unique<Item>(share(std::move(*bucket))));
  else
    keep(ordered, std::make_unique<Item>(std::move(response)));
}

void Dispatcher::enqueue_planned(const control::StartBucket& started,
                                 std::span<std::optional<TensorRef>> tensors) {
  std::shared_ptr<RowCounts> row_counts;
  if (started.row_counts != nullptr) row_counts = enqueue_row_counts(started, tensors);
  const Ordered& ordered = order_.enqueue_planned(*started.bucket, started.number);
  const size_t at = started.first_position;
  std::unique_ptr<Item> item = at < ended_.size() ? std::move(ended_[at]) : nullptr;
  const bool is_of_this_plan =
      item != nullptr && item->bucket == started.bucket;  // an older plan's ends late
  if (!is_of_this_plan) item = std::make_unique<Item>(started.bucket);
  item->first_position = at;
  item->row_counts = std::move(row_counts);
  for (std::optional<TensorRef>& tensor : tensors)
    item->tensors.push_back(std::exchange(tensor, std::nullopt));
  keep(ordered, std::move(item));
}

std::shared_ptr<RowCounts> Dispatcher::enqueue_row_counts(const control::StartBucket& started,
                                                          std::span<const std::optional<TensorRef>> tensors) {
  auto counts = std::make_shared<RowCounts>();
  for (const std::optional<TensorRef>& tensor : tensors) {
    if (!tensor || !tensor->has_tensor()) continue;
    control::tell_rows(tensor->tensor().request, counts->mine);
    counts->submitted = std::max(counts->submitted, tensor->operation->submitted);
  }
  const control::Entry& told = started.row_counts->entries.front();
  counts->mine.resize(static_cast<size_t>(told.shape.front()));
  counts->all.resize(counts->mine.size() * told.rows.size());
  auto item = std::make_unique<Item>(started.row_counts);
  item->row_counts = counts;
  item->tells_rows = true;
  keep(order_.enqueue_planned(*started.row_counts, started.number - 1), std::move(item));
  return counts;
}

void Dispatcher::keep_for_next_pass(std::unique_ptr<Item> item) {
  const size_t at = item->first_position;
  if (at >= ended_.size()) ended_.resize(at + 1);
  item->renew();
  ended_[at] = std::move(item);
}

void Dispatcher::enqueue_discarded(control::Bucket bucket, int64_t number, std::vector<int32_t> arrivals) {
  const Ordered& ordered = order_.enqueue_discarded(bucket, number);
  auto item = std::make_unique<Item>(share(std::move(bucket)));
  item->arrivals = std::move(arrivals);
  keep(ordered, std::move(item));
}

void Dispatcher::keep(const Ordered& ordered, std::unique_ptr<Item> item) {
  item->origin = ordered.origin;
  item->generation = ordered.generation;
  item->place = ordered.place;
  item->is_recorded = ordered.is_call && ordered.origin != control::BatchOrigin::kDiscarded;
  if (item->is_recorded) item->ordered = monotonic_now();
  if (order_.backlog() == 1) item->started = item->ordered;  // the backend takes it in this turn
  if (ordered.key >= items_.size()) items_.resize(ordered.key + 1);
  items_[ordered.key] = std::move(item);
}

void Dispatcher::forget_planned() { ended_.clear(); }

bool Dispatcher::has_room_for(int64_t number) const {
  const OrderAction opening = order_.opening();
  if (opening.what != OrderAction::What::kLook) return opening.what == OrderAction::What::kStart;
  return items_[opening.key]->backend->has_room(static_cast<uint64_t>(number));
}

bool Dispatcher::progress() {
  bool moved = false;
  const bool has_work = !order_.running().empty() || has_launched_;
  for (size_t i = 0; has_work && i < backends_.all().size(); ++i)
    if (!backends_.all()[i]->is_idle()) moved = backends_.all()[i]->progress(done_) || moved;
  has_moved_ = has_moved_ || moved;
  if (moved) note_movement();
  for (const backend::Done& done : done_) finish(done);
  moved = moved || !done_.empty();
  done_.clear();
  if (has_launched_) look_at_devices();
  return start_what_fits() || moved;
}

// Only buckets of plans start before all ranks have come.
void Dispatcher::note_movement() {
  Nanos now = 0;
  for (const Ordered& one : order_.running()) {
    if (one.origin != control::BatchOrigin::kPlanned) continue;
    if (now == 0) now = monotonic_now();
    items_[one.key]->moved(now);
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
  const auto waits = [this](const Ordered& one) { return items_[one.key]->backend->waits_on_memory(); };
  return !order_.running().empty() && std::ranges::all_of(order_.running(), waits);
}

bool Dispatcher::start_what_fits() {
  bool moved = false;
  waits_for_device_ = false;
  OrderAction next = failure_.is_ok() ? order_.next() : OrderAction();
  while (next.what != OrderAction::What::kNothing) {
    if (next.what == OrderAction::What::kLook) {
      const std::optional<Readiness> ready = look(*items_[next.key], next.is_first);
      if (!ready) break;
      next = order_.looked(*ready);
    } else {
      carry_out(next);
      moved = true;
      next = failure_.is_ok() ? order_.next() : OrderAction();
    }
  }
  return moved;
}

std::optional<Readiness> Dispatcher::look(Item& item, bool is_first) {
  if (!item.is_made) {
    std::shared_ptr<const Group> group = groups_.find(item.bucket->process_set);
    if (group == nullptr || !group->is_member()) return Readiness();
    if (!make_batch_of(item, std::move(group))) return std::nullopt;
  }
  return Readiness{.backend = item.backend_number,
                   .has_room = item.backend != nullptr && item.backend->has_room(item.place),
                   .memory = look_at_memory(*item.batch, is_first)};
}

Readiness::Memory Dispatcher::look_at_memory(const Batch& batch, bool is_first) {
  Readiness::Memory seen = Readiness::Memory::kItsOwn;
  for (const BatchTensor& tensor : batch.tensors) {
    if (!tensor.ref || !tensor.ref->operation->shares_memory.load(std::memory_order_acquire)) continue;
    seen = Readiness::Memory::kFree;
    if (!is_first) return seen;
    const Operations::Turn turn = operations_.turn_of(*tensor.ref);
    waits_for_device_ = turn == Operations::Turn::kAfterDevice;
    if (turn != Operations::Turn::kNow) return Readiness::Memory::kInUse;
  }
  return seen;
}

bool Dispatcher::make_batch_of(Item& item, std::shared_ptr<const Group> group) {
  if (item.origin == control::BatchOrigin::kNegotiated)
    item.tensors = find_tensors(*item.bucket, *group, operations_);
  if (!item.batch) item.batch.emplace(make_batch(item.bucket, std::move(group), item.tensors));
  item.is_made = true;
  Batch& batch = *item.batch;
  Status meant = Status::ok();
  if (item.row_counts != nullptr && !item.tells_rows) meant = set_rows(batch, item.row_counts->all);
  if (meant.is_ok()) meant = take_tensors(batch, item.tensors);
  if (!meant.is_ok()) {
    failure_ = std::move(meant);
    return false;
  }
  item.backend = backends_.choose(*batch.group, batch.spec, batch.memory);
  for (size_t i = 0; i < backends_.all().size(); ++i)
    if (backends_.all()[i].get() == item.backend) item.backend_number = static_cast<int16_t>(i);
  return true;
}

void Dispatcher::carry_out(const OrderAction& action) {
  using What = OrderAction::What;
  if (action.what == What::kStart || action.what == What::kDiscard) return start(action);
  const std::unique_ptr<Item> item = std::move(items_[action.key]);
  if (action.what == What::kRefuse) fail_unsupported(*item->batch);
  if (action.what == What::kAnswer) answer(*item->notice);
}

void Dispatcher::answer(const control::Response& notice) {
  const auto* failure = std::get_if<control::Failure>(&notice);
  const auto* joined = std::get_if<control::Joined>(&notice);
  const auto* added = std::get_if<control::SetAdded>(&notice);
  const auto* removed = std::get_if<control::SetRemoved>(&notice);
  if (added != nullptr) groups_.add(added->id, added->ranks);
  if (removed != nullptr) {
    groups_.remove(removed->id);
    operations_.forget_of(removed->id);
    residuals_.drop(removed->id);
    counters_.residual_bytes.store(residuals_.bytes(), std::memory_order_relaxed);
  }
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

Status Dispatcher::prepare(Item& item) {
  Batch& batch = *item.batch;
  if (Status s = prepare_batch(batch, devices_); !s.is_ok()) return s;
  if (item.tells_rows) {
    batch.segments.front().input = item.row_counts->mine.data();
    batch.segments.front().output = item.row_counts->all.data();
  }
  if (batch.spec.wire == Wire::kExact || !item.backend->encodes(*batch.group)) return Status::ok();
  const Status attached = residuals_.attach(batch);
  counters_.residual_bytes.store(residuals_.bytes(), std::memory_order_relaxed);
  return attached;
}

void Dispatcher::start(const OrderAction& action) {
  Item& item = *items_[action.key];
  Batch& batch = *item.batch;
  item.id = next_call_++;
  if (item.is_recorded && trace_.wants_details()) item.messages = &trace_;
  if (item.is_recorded && item.started == 0) item.started = monotonic_now();
  // Those that left a plan before their bucket was full have none yet.
  ready_streams_.begin();
  for (const BatchTensor& tensor : batch.tensors)
    if (tensor.ref) ready_streams_.mark(tensor.ref->tensor(), true);
  if (const Status prepared = prepare(item); !prepared.is_ok()) {
    failure_ = prepared;  // the others have started: this rank alone cannot back out
    order_.ended(action.key);
    items_[action.key].reset();
    return;
  }
  const backend::Call call{.id = item.id,
                           .order = item.place,
                           .group = batch.group.get(),
                           .spec = batch.spec,
                           .segments = batch.segments,
                           .prescale = is_reduction(item.bucket->what) ? item.bucket->prescale : 1.0,
                           .may_be_cancelled = item.origin != control::BatchOrigin::kNegotiated,
                           .generation = item.generation,
                           .activities = item.is_recorded ? &item : nullptr};
  mark_started(batch, true);
  if (action.what == OrderAction::What::kDiscard)
    return item.cancellation().discard(call, by_member(item.arrivals, *batch.group));
  count(counters_.batches);
  if (!item.tells_rows) count(counters_.tensors, static_cast<int64_t>(batch.tensors.size()));
  count(counters_.bytes, batch.spec.count * static_cast<int64_t>(size_of(batch.spec.dtype)));
  item.backend->start(call);
}

// Every rank comes to the same verdict.
void Dispatcher::fail_unsupported(const Batch& batch) {
  const std::string& why = backends_.why_no_devices();
  const Status status{Code::kUnsupported, "no backend of this job can use the memory of tensor " +
                                              batch.name(0) + (why.empty() ? "" : " (" + why + ")") +
                                              "; copy the tensor to host memory first."};
  if (trace_.wants_details()) record_tensors(trace_, batch, std::nullopt, false);
  for (const BatchTensor& tensor : batch.tensors)
    if (tensor.ref) operations_.finish(*tensor.ref, status);
}

void Dispatcher::finish(const backend::Done& done) {
  const std::span<const Ordered> running = order_.running();
  const auto at =
      std::ranges::find(running, done.id, [this](const Ordered& one) { return items_[one.key]->id; });
  RUEDA_CHECK(at != running.end(), "a backend finished a call that was not running");
  std::unique_ptr<Item> item = std::move(items_[at->key]);
  const bool has_result = order_.ended(control::OrderKey{at->key});
  counters_.algorithm.store(done.how.data(), std::memory_order_relaxed);
  // A refusal that follows from the request is the same on every rank. Any other failure happened on this
  // rank alone, and the channels are out of step.
  const Status& status = done.status;
  const bool is_everywhere = status.code == Code::kUnsupported || status.code == Code::kInvalidArgument;
  if (!status.is_ok() && !is_everywhere) {
    failure_ = status;  // the operations end with the epoch, whose status names the culprit
    if (done.segment) failure_.why = "Tensor " + item->batch->name(*done.segment) + ": " + status.why;
    return;
  }
  if (!has_result) return;
  if (done.event != nullptr) has_launched_ = true;
  if (item->is_recorded) {
    const CallTrace call = item->record_of(done, monotonic_now());
    counters_.meters->called(call);
    if (trace_.is_recording()) trace_.record(call);
    if (trace_.wants_details() && !item->tells_rows)
      record_tensors(trace_, *item->batch, call_tag(call.generation, call.order), status.is_ok());
  }
  const Batch& batch = *item->batch;
  for (const BatchTensor& tensor : batch.tensors)
    if (tensor.ref) operations_.finish(*tensor.ref, status, done.event);
  if (item->origin == control::BatchOrigin::kPlanned && !item->tells_rows)
    keep_for_next_pass(std::move(item));
}

std::vector<control::BucketUnderWay> Dispatcher::pause() {
  std::vector<control::BucketUnderWay> buckets;
  for (const control::OrderKey key : order_.pause()) {
    const Item& item = *items_[key];
    buckets.push_back({.bucket = static_cast<int64_t>(item.place),
                       .sent = by_world_rank(item.cancellation().pause(item.id), *item.batch->group)});
  }
  return buckets;
}

void Dispatcher::resume() {
  for (const control::OrderKey key : order_.resume()) items_[key]->cancellation().resume(items_[key]->id);
}

void Dispatcher::cancel(int64_t number, std::span<const int32_t> arrivals) {
  if (!failure_.is_ok()) return;  // the epoch ends
  const OrderAction action = order_.cancel(number);
  if (action.what == OrderAction::What::kForget) return items_[action.key].reset();
  Item& item = *items_[action.key];
  mark_started(*item.batch, false);
  item.cancellation().cancel(item.id, by_member(arrivals, *item.batch->group));
}

void Dispatcher::abort() {
  order_.clear();
  items_.clear();
  ended_.clear();
}

}  // namespace rueda::runtime
