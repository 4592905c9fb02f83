#include "rueda/runtime/operations.h"

#include <sched.h>

#include <algorithm>
#include <utility>

namespace rueda::runtime {
namespace {

// A thread that yields for so long before it sleeps sees fast operations end without a wake-up, which takes
// about 30 us.
constexpr Nanos kYieldBeforeSleep = 60 * kMicrosecond;
// A thread that has polled an operation for so long counts as one that waits for it.
constexpr Nanos kPatientPolling = 20 * kMillisecond;

Status duplicate(const std::string& name) {
  return {Code::kDuplicateName,
          "Requested to collect a tensor with the same name as another tensor that is currently being "
          "processed: " +
              name + ". Give concurrent operations different names, or wait for the first."};
}

Status unknown_handle(int64_t handle) {
  return {Code::kInvalidArgument,
          "Handle " + std::to_string(handle) + " was not created or has been cleared."};
}

Status unknown_prepared(int64_t number) {
  return {
      Code::kInvalidArgument,
      "Number " + std::to_string(number) +
          " names no prepared operation: it was forgotten, its process set was removed, or it was prepared "
          "before the last shutdown. Prepare it again."};
}

// The first failure, once all events have happened: until then the device uses the buffers.
Status wait_for_events(const Operation& operation, std::optional<Deadline> deadline) {
  Status first = operation.status;
  for (const std::shared_ptr<backend::DeviceEvent>& event : operation.events) {
    const std::optional<Status> outcome = event->wait(deadline);
    if (!outcome)
      return {Code::kTimeout, "Operation " + operation.name() + " is still running on its device."};
    if (first.is_ok() && !outcome->is_ok()) first = operation.failed_on_device(*outcome);
  }
  return first;
}

void call(const std::vector<Callback>& callbacks) {
  for (const Callback& each : callbacks) each.function(each.argument);
}

}  // namespace

Result<int64_t> Operations::submit(std::vector<Tensor> tensors, bool wakes) {
  auto operation = std::make_shared<Operation>();
  operation->tensors = std::move(tensors);
  operation->open = operation->tensors.size();
  operation->is_waited_for = !wakes;
  Result<int64_t> handle = enter(operation);
  if (wakes && handle.is_ok() && !operation->is_done.load(std::memory_order_acquire)) wake_engine_();
  return handle;
}

Result<int64_t> Operations::submit(control::SetChange change) {
  auto operation = std::make_shared<Operation>();
  operation->set_change = std::move(change);
  operation->open = 1;
  Result<int64_t> handle = enter(operation);
  if (handle.is_ok()) wake_engine_();
  return handle;
}

NameView Operations::view_of(const Operation& operation, size_t index) {
  if (operation.set_change) return {.process_set = 0, .name = operation.set_change->name};
  const control::TensorRequest& request = operation.tensors[index].request;
  return {.process_set = request.process_set, .name = request.name};
}

Result<int64_t> Operations::enter(const std::shared_ptr<Operation>& operation) {
  operation->submitted = monotonic_now();
  const std::lock_guard lock(mutex_);
  if (!closed_.is_ok()) return closed_;
  if (ends_now(*operation)) {
    operation->handle = next_handle_++;
    handles_.emplace(operation->handle, operation);
    return operation->handle;
  }
  for (size_t i = 0; i < operation->open; ++i) {
    const auto [at, is_new] =
        in_flight_.try_emplace(NameKey(view_of(*operation, i)), TensorRef{operation, i});
    if (is_new) continue;
    Status refused = duplicate(at->first.name);
    for (size_t k = 0; k < i; ++k)  // all or none: forget the names before this one
      in_flight_.erase(in_flight_.find(view_of(*operation, k)));
    return refused;
  }
  operation->handle = next_handle_++;
  for (size_t i = 0; i < operation->tensors.size(); ++i) memory_.add(operation, i);
  handles_.emplace(operation->handle, operation);
  submitted_.push_back(operation);
  return operation->handle;
}

bool Operations::ends_now(Operation& operation) {
  const bool has_tensors = !operation.tensors.empty();
  if (!end_now_ || !has_tensors || !in_flight_.empty()) return false;
  for (size_t i = 0; memory_.has_launched() && i < operation.tensors.size(); ++i)
    if (!memory_.before(operation, i).events.empty()) return false;  // the device still writes there
  if (!end_now_(operation)) return false;
  operation.open = 0;
  operation.is_done.store(true, std::memory_order_release);
  return true;
}

Operations::Numbers Operations::next_numbers() const {
  const std::lock_guard lock(mutex_);
  return {.handle = next_handle_, .prepared = prepared_.next()};
}

int64_t Operations::prepare(Tensor tensor) {
  const std::lock_guard lock(mutex_);
  return prepared_.add(std::move(tensor));
}

std::shared_ptr<const Tensor> Operations::prepared(int64_t number) const {
  const std::lock_guard lock(mutex_);
  return prepared_.tensor(number);
}

void Operations::forget(int64_t number) {
  std::shared_ptr<Prepared> last;  // destroyed without the lock
  const std::lock_guard lock(mutex_);
  last = prepared_.take(number);
}

void Operations::forget_of(int32_t process_set) {
  std::vector<std::shared_ptr<Prepared>> last;  // destroyed without the lock
  const std::lock_guard lock(mutex_);
  last = prepared_.take_of(process_set);
}

Prepared* Operations::prepared_of(const Operation& operation) {
  return operation.prepared != 0 ? prepared_.find(operation.prepared) : nullptr;
}

Result<int64_t> Operations::start(const PreparedStart& start) {
  std::shared_ptr<Operation> replaced;  // destroyed without the lock
  const Nanos now = monotonic_now();
  const std::lock_guard lock(mutex_);
  if (!closed_.is_ok()) return closed_;
  Prepared* const prepared = prepared_.find(start.number);
  if (prepared == nullptr) return unknown_prepared(start.number);
  if (in_flight_.contains(prepared->view())) return duplicate(prepared->tensor.request.name);
  replaced = prepared->renew(start);
  const std::shared_ptr<Operation>& operation = prepared->operation;
  operation->submitted = now;
  operation->handle = next_handle_++;
  const bool has_ended = ends_now(*operation);
  if (!has_ended) prepared->enter(in_flight_);
  prepared->enter(handles_);
  if (has_ended) return operation->handle;
  memory_.add(operation, 0);
  submitted_.push_back(operation);
  return operation->handle;
}

// The name is in flight no longer. What was prepared keeps the entry for its next run.
void Operations::leave_name(const Operation& operation, size_t index) {
  Prepared* const prepared = prepared_of(operation);
  const auto at = in_flight_.find(prepared != nullptr ? prepared->view() : view_of(operation, index));
  if (at == in_flight_.end()) return;
  if (prepared == nullptr) {
    in_flight_.erase(at);
    return;
  }
  prepared->name = in_flight_.extract(at);
  prepared->name.mapped() = TensorRef();
}

int Operations::poll(int64_t handle) const {
  std::shared_ptr<const Operation> launched;
  {
    const std::lock_guard lock(mutex_);
    const auto found = handles_.find(handle);
    if (found == handles_.end()) return -1;
    if (!found->second->is_done.load(std::memory_order_acquire)) {
      want(*found->second, monotonic_now() + kPatientPolling);
      return 0;
    }
    if (found->second->events.empty()) return 1;
    launched = found->second;
  }
  const auto has_happened = [](const auto& event) { return event->outcome().has_value(); };
  return std::ranges::all_of(launched->events, has_happened) ? 1 : 0;
}

bool Operations::want(const Operation& operation, Nanos from) const {
  Nanos nobody = 0;
  const bool is_first = operation.wanted_from.compare_exchange_strong(nobody, from);
  if (!is_first && nobody > from) operation.wanted_from.store(from);
  if (is_first || nobody > from) wants_.fetch_add(1);
  return is_first;
}

Status Operations::wait(int64_t handle, std::optional<Deadline> deadline) {
  const std::shared_ptr<Operation> operation = find(handle);
  if (!operation) return unknown_handle(handle);
  if (Status late = until_done(*operation, deadline); !late.is_ok()) return late;
  if (operation->events.empty()) return operation->status;
  Status outcome = wait_for_events(*operation, deadline);
  if (outcome.code != Code::kTimeout) is_waited_for(*operation);
  return outcome;
}

Operations::StreamWaits::StreamWaits(Operations& operations, std::span<const int64_t> handles, void* stream)
    : operations_(operations), handles_(handles), stream_(stream), found_(handles.size()) {
  const std::lock_guard lock(operations_.mutex_);
  for (size_t i = 0; i < handles.size(); ++i) {
    const auto found = operations_.handles_.find(handles[i]);
    if (found != operations_.handles_.end()) found_[i] = found->second;
  }
}

Status Operations::StreamWaits::wait(size_t index, std::optional<Deadline> deadline) {
  const std::shared_ptr<Operation>& operation = found_[index];
  if (!operation) return unknown_handle(handles_[index]);
  if (Status late = operations_.until_done(*operation, deadline); !late.is_ok()) return late;
  Status first = operation->status;
  for (const std::shared_ptr<backend::DeviceEvent>& event : operation->events) {
    if (std::ranges::find(waits_for_, event.get()) != waits_for_.end()) continue;
    const Status made = event->make_stream_wait(stream_);
    if (made.is_ok()) waits_for_.push_back(event.get());
    if (first.is_ok() && !made.is_ok())
      first = {made.code, "The stream cannot wait for operation " + operation->name() + ": " + made.why};
  }
  if (first.is_ok() && !operation->events.empty()) operations_.is_waited_for(*operation);
  return first;
}

void Operations::is_waited_for(const Operation& operation) {
  const std::lock_guard lock(mutex_);
  memory_.is_waited_for(operation);
}

void Operations::about_to_wait(const Operation& operation) const {
  if (sleeps_at_once_) want(operation, monotonic_now());
}

Status Operations::until_done(const Operation& operation, std::optional<Deadline> deadline) {
  if (!operation.is_done.load(std::memory_order_acquire) && want(operation, monotonic_now())) wake_engine_();
  const Nanos yield_until = sleeps_at_once_ ? 0 : monotonic_now() + kYieldBeforeSleep;
  while (!operation.is_done.load(std::memory_order_acquire) && monotonic_now() < yield_until) sched_yield();
  std::unique_lock lock(mutex_);
  const auto is_done = [&] { return operation.is_done.load(std::memory_order_acquire); };
  if (!deadline) {
    completed_.wait(lock, is_done);  // bounded by the engine: it ends every operation when a peer is lost
  } else {
    const auto left = std::chrono::nanoseconds(std::max<Nanos>(0, deadline->when() - monotonic_now()));
    if (!completed_.wait_for(lock, left, is_done)) {
      return {Code::kTimeout, "Operation " + operation.name() + " is still pending."};
    }
  }
  return Status::ok();
}

std::shared_ptr<Operation> Operations::find(int64_t handle) const {
  const std::lock_guard lock(mutex_);
  const auto found = handles_.find(handle);
  return found == handles_.end() ? nullptr : found->second;
}

void Operations::release(int64_t handle) { release(std::span(&handle, 1)); }

void Operations::release(std::span<const int64_t> handles) {
  std::vector<std::shared_ptr<Operation>> last;  // destroyed outside the lock
  const std::lock_guard lock(mutex_);
  for (const int64_t handle : handles)
    if (std::shared_ptr<Operation> one = release_locked(handle)) last.push_back(std::move(one));
}

// What was prepared stays, for its next run.
std::shared_ptr<Operation> Operations::release_locked(int64_t handle) {
  const auto found = handles_.find(handle);
  if (found == handles_.end()) return nullptr;
  std::shared_ptr<Operation> last = std::move(found->second);
  if (Prepared* const prepared = prepared_of(*last)) {
    prepared->handle = handles_.extract(found);
    return prepared->operation == last ? nullptr : last;
  }
  handles_.erase(found);
  return last;
}

Status Operations::on_done(int64_t handle, Callback callback) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = handles_.find(handle);
    if (found == handles_.end()) return unknown_handle(handle);
    if (!found->second->is_done.load(std::memory_order_acquire)) {
      found->second->callbacks.push_back(callback);
      want(*found->second, monotonic_now() + kPatientPolling);  // the next submission may depend on it
      return Status::ok();
    }
  }
  callback.function(callback.argument);
  return Status::ok();
}

void Operations::take_submitted(std::vector<std::shared_ptr<Operation>>& taken) {
  taken.clear();
  const std::lock_guard lock(mutex_);
  submitted_.swap(taken);
}

bool Operations::has_submitted() const {
  const std::lock_guard lock(mutex_);
  return !submitted_.empty();
}

bool Operations::is_empty() const {
  const std::lock_guard lock(mutex_);
  return in_flight_.empty();
}

std::optional<TensorRef> Operations::lookup(int32_t process_set, const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const auto found = in_flight_.find(NameView{.process_set = process_set, .name = name});
  if (found == in_flight_.end()) return std::nullopt;
  return found->second;
}

Operations::Turn Operations::turn_of(const TensorRef& ref) {
  if (!ref.operation->shares_memory.load(std::memory_order_acquire)) return Turn::kNow;
  MemoryInUse::Conflicts conflicts;
  {
    const std::lock_guard lock(mutex_);
    conflicts = memory_.before(*ref.operation, ref.index);
  }
  if (conflicts.is_running) return Turn::kAfterCall;
  const auto has_happened = [](const auto& event) { return event->outcome().has_value(); };
  return std::ranges::all_of(conflicts.events, has_happened) ? Turn::kNow : Turn::kAfterDevice;
}

// Programs that never wait for what they launch would fill the memory.
void Operations::look_through_launched() {
  DeviceEvents events;
  {
    const std::lock_guard lock(mutex_);
    events = memory_.to_look_through();
  }
  if (events.empty()) return;
  std::ranges::sort(events);
  events.erase(std::ranges::unique(events).begin(), events.end());
  std::erase_if(events, [](const auto& event) { return !event->outcome().has_value(); });
  const std::lock_guard lock(mutex_);
  memory_.forget(events);
}

void Operations::finish(const TensorRef& ref, const Status& status,
                        const std::shared_ptr<backend::DeviceEvent>& event) {
  if (event != nullptr) look_through_launched();
  std::vector<Callback> callbacks;
  bool is_over = false;
  {
    const std::lock_guard lock(mutex_);
    Operation& operation = *ref.operation;
    leave_name(operation, ref.index);
    if (ref.has_tensor()) {
      memory_.ended(operation, ref.index, event);
      operation.tensors[ref.index].forget_ready();
    }
    RUEDA_CHECK(operation.open > 0, "a tensor was finished twice");
    --operation.open;
    if (!status.is_ok() && operation.status.is_ok()) operation.status = status;
    if (event != nullptr && (operation.events.empty() || operation.events.back() != event))
      operation.events.push_back(event);  // the tensors of a call are finished one after the other
    is_over = operation.open == 0;
    if (is_over) callbacks = complete_locked(operation);
  }
  if (is_over) completed_.notify_all();  // now, because a thread that wakes takes the lock
  call(callbacks);
}

void Operations::close(const Status& why) {
  std::vector<Callback> callbacks;
  {
    const std::lock_guard lock(mutex_);
    if (!closed_.is_ok()) return;
    closed_ = why;
    for (const auto& [key, ref] : in_flight_) {
      if (ref.operation->is_done) continue;
      if (ref.operation->status.is_ok()) ref.operation->status = why;
      for (const Callback& each : complete_locked(*ref.operation)) callbacks.push_back(each);
    }
    in_flight_.clear();
    submitted_.clear();
    memory_.clear();
  }
  completed_.notify_all();
  call(callbacks);
}

std::pair<std::vector<InFlight>, size_t> Operations::oldest(size_t most) const {
  const std::lock_guard lock(mutex_);
  std::vector<const TensorRef*> refs;
  refs.reserve(in_flight_.size());
  for (const auto& [key, ref] : in_flight_) refs.push_back(&ref);
  const size_t shown = std::min(most, refs.size());
  const auto is_older = [](const TensorRef* a, const TensorRef* b) {
    return a->operation->submitted < b->operation->submitted;
  };
  std::partial_sort(refs.begin(), refs.begin() + static_cast<std::ptrdiff_t>(shown), refs.end(), is_older);
  std::vector<InFlight> out;
  for (size_t i = 0; i < shown; ++i) {
    InFlight& one = out.emplace_back();
    one.submitted = refs[i]->operation->submitted;
    if (!refs[i]->has_tensor()) {
      one.name = refs[i]->operation->name();
      one.what = "PROCESS_SET";
      continue;
    }
    const control::TensorRequest& request = refs[i]->tensor().request;
    one.name = request.name;
    one.what = name_of(request.what);
    one.process_set = request.process_set;
    one.bytes = refs[i]->tensor().bytes();
  }
  return {std::move(out), refs.size()};
}

Status Operations::closed_with() const {
  const std::lock_guard lock(mutex_);
  return closed_;
}

bool Operations::is_awaited(Nanos now) const {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(in_flight_,
                             [now](const auto& one) { return one.second.operation->is_wanted(now); });
}

std::vector<Callback> Operations::complete_locked(Operation& operation) {
  operation.is_done.store(true, std::memory_order_release);
  return std::exchange(operation.callbacks, {});
}

}  // namespace rueda::runtime
