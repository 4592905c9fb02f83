#include "rueda/backend/device/staged.h"

#include <sched.h>

#include <algorithm>

#include "rueda/base/check.h"
#include "rueda/base/clock.h"

namespace rueda::backend {
namespace {

// While a call is on its way from the device, so many may be open: the copies of the next ones begin early.
constexpr size_t kMostOpen = 4;
// Copies that are under way end within milliseconds, unless the device hangs.
constexpr Nanos kAbortWait = 2 * kSecond;

}  // namespace

bool StagedBackend::accepts(const Group& group, const schedule::Spec& spec, const Memory& memory) const {
  return host_->accepts(group, spec, memory.kind == MemoryKind::kDevice ? Memory{} : memory);
}

bool StagedBackend::has_room(uint64_t order) const {
  const bool is_staging = std::ranges::any_of(open_, [](const auto& call) { return call->is_on_device(); });
  return is_staging ? open_.size() < kMostOpen : has_room_inside(order);
}

void StagedBackend::start(const Call& call) {
  StagedCall& mine = *open_.emplace_back(std::make_unique<StagedCall>(call, options_.section_bytes));
  if (!broken_.is_ok()) return mine.fail(broken_);
  if (!mine.is_on_device()) return void(start_in_order());
  ask_for_way(mine, call);
  if (const Status prepared = mine.prepare(*copiers_); !prepared.is_ok()) fail(mine, prepared);
}

void StagedBackend::discard(const Call& call, std::span<const int32_t> arrivals) {
  StagedCall& mine = *open_.emplace_back(std::make_unique<StagedCall>(call, options_.section_bytes));
  mine.is_cancelled = true;
  mine.fetched = mine.sections.size();
  mine.arrivals.assign(arrivals.begin(), arrivals.end());
  Call as_started = call;  // as it was on the members that started it
  as_started.may_be_cancelled = true;
  if (mine.is_on_device()) ask_for_way(mine, as_started);
  if (!broken_.is_ok()) return mine.fail(broken_);
  start_in_order();
}

void StagedBackend::ask_for_way(StagedCall& call, const Call& as) {
  const PeerSetup::Way way = peers_.setup().way_of(as);
  call.uses_slots = way.uses_slots;
  call.must_set_up = way.must_set_up;
}

// False until the members have met.
bool StagedBackend::decide(StagedCall& call) {
  if (call.is_decided()) return true;
  const Group& group = *call.call.group;
  if (call.must_set_up || !peers_.setup().is_settled(group, call.uses_slots)) return false;
  StagingBuffers* const slots = call.uses_slots ? peers_.setup().slots_of(group) : nullptr;
  if (call.uses_slots && slots == nullptr) call.fail(peers_.setup().refusal(group));
  if (slots == nullptr)
    call.decide(buffers_, std::nullopt);
  else
    call.decide(*slots, peers_.setup().members_of(group).section_bytes);
  return true;
}

// In the place of the call in the global order.
bool StagedBackend::set_up(StagedCall& call) {
  if (!broken_.is_ok() || !has_room_inside(call.call.order)) return false;
  call.must_set_up = false;
  peers_.setup().begin(call.call, call.uses_slots);
  return true;
}

bool StagedBackend::progress(std::vector<Done>& done) {
  bool moved = look_at_launched();
  for (const auto& call : open_) {
    moved = fetch(*call) || moved;
    // A later call must not take the buffers for which this one waits.
    if (call->wants_fetch()) break;
  }
  moved = start_in_order() || moved;
  if (!host_->is_idle()) moved = host_->progress(host_done_) || moved;
  std::erase_if(host_done_, [this](const Done& each) { return peers_.take(each); });
  moved = peers_.progress(host_done_) || moved;
  for (const Done& each : std::exchange(host_done_, {})) on_host_done(each);
  return hand_out(done) || moved;
}

bool StagedBackend::look_at_launched() {
  return std::erase_if(launched_, [](const std::shared_ptr<CudaEvent>& event) {
           const std::optional<Status> outcome = event->outcome();
           return outcome && outcome->is_ok();
         }) > 0;
}

Status StagedBackend::device_failure() const {
  for (const auto& event : launched_) {
    const std::optional<Status> outcome = event->outcome();
    if (outcome && !outcome->is_ok()) return *outcome;
  }
  return Status::ok();
}

bool StagedBackend::fetch(StagedCall& call) {
  bool moved = false;
  while (call.wants_fetch()) {
    if (!decide(call)) return moved;
    if (!call.status.is_ok()) return true;
    const Result<bool> ready = call.is_ready();
    if (!ready.is_ok()) return fail(call, ready.status()), true;
    if (!ready.value()) return moved;
    const Result<bool> fetched = call.fetch();
    if (!fetched.is_ok()) return fail(call, fetched.status()), true;
    if (!fetched.value()) return moved;
    if (call.fetched == 1) call.call.note(Activity::kPack);
    moved = true;
  }
  return moved;
}

// No call, and no section of a call, overtakes another one: all members start them in one order.
bool StagedBackend::start_in_order() {
  bool moved = false;
  for (const auto& call : open_) {
    if (call->must_set_up && call->status.is_ok()) {
      if (!set_up(*call)) return moved;
      moved = true;
    }
    while (call->wants_start()) {
      if (!can_start(*call)) return moved;
      start_section(*call);
      moved = true;
    }
  }
  return moved;
}

bool StagedBackend::can_start(StagedCall& call) {
  if (!broken_.is_ok() || call.is_held || !decide(call) || !call.status.is_ok()) return false;
  if (call.is_cancelled) return has_room_inside(call.call.order);
  if (call.started >= call.fetched) return false;
  StagedSection& next = call.sections[call.started];
  for (const auto& event : next.coming) {
    const std::optional<Status> outcome = event->outcome();
    if (!outcome) return false;
    if (!outcome->is_ok()) return fail(call, *outcome), false;
  }
  if (call.call.may_be_cancelled && call.started > 0 && !call.sections.front().has_ended) return false;
  return has_room_inside(call.call.order + call.started);
}

void StagedBackend::start_section(StagedCall& call) {
  if (call.is_on_device() && call.started == 0) call.call.note(Activity::kTransfer);
  const Call inner = call.inner_call(next_inner_++);
  ++call.started;
  const bool is_on_slots = PeerExchange::takes(inner);
  if (call.is_cancelled) {
    Cancellation& owner = is_on_slots ? peers_ : *host_->cancellation();
    return owner.discard(inner, call.arrivals);
  }
  if (is_on_slots) return peers_.start(inner);
  host_->start(inner);
}

void StagedBackend::on_host_done(const Done& done) {
  for (const auto& call : open_) {
    for (StagedSection& section : call->sections) {
      if (section.inner != done.id || section.has_ended) continue;
      section.has_ended = true;
      ++call->ended;
      call->how = done.how;
      if (!done.status.is_ok()) return call->fail(done.status);
      if (call->is_cancelled || !call->is_on_device() || !call->status.is_ok()) return;
      if (call->ended == call->sections.size()) call->call.note(Activity::kUnpack);
      if (const Status stored = call->store(section); !stored.is_ok()) fail(*call, stored);
      return;
    }
  }
  RUEDA_CHECK(!broken_.is_ok(), "the host backend finished a call that was not running");
}

bool StagedBackend::hand_out(std::vector<Done>& done) {
  return std::erase_if(open_, [&](const std::unique_ptr<StagedCall>& call) {
           const bool is_out_of_step = !broken_.is_ok() && !call->status.is_ok();
           if (!call->is_over() && !is_out_of_step) return false;
           call->return_buffers();
           done.push_back(call->done());
           if (done.back().event != nullptr) launched_.push_back(call->event);
           return true;
         }) > 0;
}

// This rank cannot take part in the call, and so in no later one either: the others do.
void StagedBackend::fail(StagedCall& call, const Status& why) {
  call.fail(why);
  if (broken_.is_ok()) broken_ = why;
}

bool StagedBackend::is_idle() const {
  const auto has_happened = [](const auto& event) { return event->outcome().has_value(); };
  return open_.empty() && host_->is_idle() && peers_.is_idle() &&
         std::ranges::all_of(launched_, has_happened);
}

bool StagedBackend::waits_on_memory() const {
  return host_->waits_on_memory() &&
         std::ranges::none_of(open_, [](const auto& call) { return call->is_on_device(); });
}

bool StagedBackend::prepare_sleep() {
  if (!peers_.prepare_sleep() || !host_->prepare_sleep()) return false;
  for (const auto& call : open_) {
    if (!call->is_on_device() || !call->status.is_ok()) continue;
    if (const Status asked = ask_for_waking(*call); !asked.is_ok()) return fail(*call, asked), false;
  }
  return true;
}

// The device rings when it has done what this call waits for.
Status StagedBackend::ask_for_waking(StagedCall& call) {
  if (call.fetched < call.sections.size() && !std::exchange(call.is_watched, true))
    for (const auto& [copier, events] : call.awaited())
      if (Status s = copier->wake_after(events); !s.is_ok()) return s;
  const bool is_coming = std::ranges::any_of(call.sections, [](const auto& one) { return !one.has_come(); });
  const bool needs_buffer =
      call.fetched < call.sections.size() && call.is_decided() && !call.buffers->has_free();
  for (DeviceCopier* copier : call.copiers()) {
    if (is_coming)
      if (Status s = copier->wake_after(DeviceCopier::Way::kToHost); !s.is_ok()) return s;
    if (needs_buffer)
      if (Status s = copier->wake_after(DeviceCopier::Way::kToDevice); !s.is_ok()) return s;
  }
  return Status::ok();
}

StagedCall& StagedBackend::open_call(CallId id) {
  const auto found = std::ranges::find(open_, id, [](const auto& call) { return call->call.id; });
  RUEDA_CHECK(found != open_.end(), "this call is not running");
  return **found;
}

std::vector<int32_t> StagedBackend::pause(CallId id) {
  StagedCall& call = open_call(id);
  const CallId inner = call.sections.front().inner;
  if (call.is_at_work()) return inside(inner).pause(inner);
  if (call.started > 0) return {};  // all members have started it
  call.is_held = true;
  return std::vector<int32_t>(static_cast<size_t>(call.call.group->size()), 0);
}

void StagedBackend::resume(CallId id) {
  StagedCall& call = open_call(id);
  const CallId inner = call.sections.front().inner;
  if (call.is_at_work()) inside(inner).resume(inner);
  call.is_held = false;
}

void StagedBackend::cancel(CallId id, std::span<const int32_t> arrivals) {
  StagedCall& call = open_call(id);
  if (!call.status.is_ok()) return;  // it has failed already
  RUEDA_CHECK(call.started <= 1 && !call.sections.front().has_ended,
              "a call that all members have started cannot be cancelled");
  call.is_cancelled = true;
  call.is_held = false;
  const CallId inner = call.sections.front().inner;
  if (call.started > 0) return inside(inner).cancel(inner, arrivals);
  call.arrivals.assign(arrivals.begin(), arrivals.end());
}

void StagedBackend::abort(const Status& why) {
  RUEDA_CHECK(!why.is_ok(), "an abort needs a reason");
  broken_ = why;
  host_->abort(why);
  peers_.abort(why);
  const Deadline deadline = Deadline::after(kAbortWait);
  const auto is_quiet = [this] {
    const auto has_happened = [](const auto& event) { return event->outcome().has_value(); };
    return std::ranges::all_of(launched_, has_happened) && std::ranges::all_of(open_, [](const auto& call) {
             return std::ranges::all_of(call->sections, [](const auto& s) { return s.has_come(); });
           });
  };
  while (!is_quiet() && !deadline.is_past()) sched_yield();
  for (const auto& event : launched_) event->fail(why);
  for (const auto& call : open_) call->return_buffers();
  open_.clear();
}

}  // namespace rueda::backend
