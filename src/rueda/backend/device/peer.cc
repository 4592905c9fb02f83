#include "rueda/backend/device/peer.h"

#include <sched.h>

#include <algorithm>
#include <utility>

#include "rueda/base/check.h"
#include "rueda/base/clock.h"

namespace rueda::backend {
namespace {

// Calls of the members' own, among those of the owner.
constexpr CallId kMeeting = CallId{1} << 63;
// A smaller call passes through pinned memory: there it needs one meeting, here three.
constexpr size_t kLargeBytes = 64 << 10;
constexpr Nanos kPeerAbortWait = 2 * kSecond;  // as StagedBackend waits for its copies

bool is_on_slots(const Call& call) {
  return !call.segments.empty() && call.segments.front().memory.kind == MemoryKind::kDevice;
}

}  // namespace

PeerBackend::PeerBackend(std::unique_ptr<Backend> host, std::shared_ptr<cuda::Devices> devices,
                         PeerOptions options)
    : host_(std::move(host)), devices_(std::move(devices)), options_(std::move(options)) {}

PeerBackend::~PeerBackend() {
  const bool is_used = event_ != nullptr && !event_->outcome().has_value();
  if (is_used || (slots_ != nullptr && !slots_->are_free())) window_.abandon();
}

// ---- how calls run ----

bool PeerBackend::may_use_slots(const Call& call) const {
  const schedule::Spec& spec = call.spec;
  const bool is_sum = spec.what == Collective::kAllreduce && spec.op == ReduceOp::kSum &&
                      spec.dtype != DType::kBool;  // a sum of bools is an OR of bytes of any value
  if (!is_sum && spec.what != Collective::kBroadcast) return false;
  if (options_.use == PeerOptions::Use::kNever || spec.count == 0) return false;
  const size_t least = std::min(kLargeBytes, options_.section_bytes);
  const bool is_large = static_cast<size_t>(spec.count) * size_of(spec.dtype) >= least;
  return (is_large || options_.use == PeerOptions::Use::kAlways) &&
         static_cast<size_t>(call.group->size()) <= cuda::Kernels::kMostSummed &&
         options_.is_one_host(*call.group);
}

PeerBackend::Way PeerBackend::way_of(const Call& call) {
  if (devices_ == nullptr || call.group->size() < 2) return {};
  Members& members = members_[key_of(*call.group)];
  Way way{.uses_slots = may_use_slots(call), .must_introduce = false};
  if (call.may_be_taken_back) {  // members that never start it could not introduce themselves
    way.uses_slots = way.uses_slots && members.has_tried;
    return way;
  }
  way.must_introduce = !members.has_met || (way.uses_slots && !members.has_tried);
  members.has_met = true;
  members.has_tried = members.has_tried || way.uses_slots;
  return way;
}

bool PeerBackend::is_settled(const Group& group, bool uses_slots) const {
  const auto found = members_.find(key_of(group));
  return !uses_slots || (found != members_.end() && found->second.is_tried);
}

StagingBuffers* PeerBackend::slots_of(const Group& group) {
  const Members& members = members_[key_of(group)];
  return members.is_tried && members.why_not.empty() ? slots_.get() : nullptr;
}

size_t PeerBackend::section_bytes(const Group& group) const {
  return members_.at(key_of(group)).section_bytes;
}

// ---- calls on slots ----

void PeerBackend::start(const Call& call) {
  if (!is_on_slots(call)) return host_->start(call);
  RUEDA_CHECK(state_ == State::kIdle, "one call on slots runs at a time");
  call_ = call;
  group_ = *call.group;
  if (!broken_.is_ok()) return end(broken_);
  const Call meeting = gathering();
  state_ = State::kGathering;
  host_->start(meeting);
}

Call PeerBackend::gathering() {
  const Segment& mine = call_.segments.front();
  places_.assign(group_.members.size(), 0);
  all_places_.assign(group_.members.size(), 0);
  if (mine.output != nullptr)
    places_[static_cast<size_t>(group_.me)] = static_cast<const std::byte*>(mine.output) - window_.data() + 1;
  segment_ = {.input = places_.data(), .output = all_places_.data(), .count = std::ssize(places_)};
  met_.reset();
  meeting_ = kMeeting | ++meetings_;
  return {.id = meeting_,
          .order = call_.order,
          .group = &group_,
          .spec = sum_spec(DType::kInt64, places_.size()),
          .segments = {&segment_, 1},
          .generation = call_.generation};
}

void PeerBackend::meet(std::span<const Segment> segments, schedule::Spec spec, State state) {
  met_.reset();
  meeting_ = kMeeting | ++meetings_;
  state_ = state;
  host_->start({.id = meeting_,
                .order = call_.order,
                .group = &group_,
                .spec = std::move(spec),
                .segments = segments,
                .generation = call_.generation});
}

void PeerBackend::barrier(State state) {
  meet({}, {.what = Collective::kBarrier, .counts = {}, .scale = {}, .segment_counts = {}}, state);
}

// All members have come, and their sections lie in their slots.
Status PeerBackend::enter_gathered() {
  const Members& members = members_.at(key_of(group_));
  const auto bytes = static_cast<size_t>(call_.spec.count) * size_of(call_.spec.dtype);
  for (size_t member = 0; member < all_places_.size(); ++member) {
    const int64_t place = all_places_[member];
    if (place >= 0 && (place == 0 || static_cast<size_t>(place - 1) + bytes <= members.window_bytes[member]))
      continue;
    return {Code::kInternal, "rank " + std::to_string(group_.members[member]) +
                                 " named a place outside its window; please report it."};
  }
  return call_.spec.what == Collective::kBroadcast ? take() : add();
}

Status PeerBackend::add() {
  const Members& members = members_.at(key_of(group_));
  const std::byte* const output = static_cast<const std::byte*>(call_.segments.front().output);
  const auto adders =
      static_cast<size_t>(std::ranges::count_if(all_places_, [](int64_t p) { return p > 0; }));
  size_t index = 0;
  for (Rank member = 0; member < group_.me; ++member) index += all_places_[static_cast<size_t>(member)] > 0;
  const Share mine = share_of(call_.spec.count, index, std::max<size_t>(adders, 1));
  if (output == nullptr || mine.count == 0) return barrier(State::kSharing), Status::ok();
  const auto offset = mine.begin * static_cast<int64_t>(size_of(call_.spec.dtype));
  std::vector<const void*> sources;
  for (size_t member = 0; member < all_places_.size(); ++member) {
    const int64_t place = all_places_[member];
    sources.push_back(place == 0 ? nullptr : members.windows[member] + (place - 1) + offset);
  }
  void* const to = window_.data() + (output - window_.data()) + offset;
  const Status added = kernels_->sum(*stream_, call_.spec.dtype, sources, to, static_cast<size_t>(mine.count),
                                     call_.prescale, call_.spec.scale);
  if (!added.is_ok()) return added;
  state_ = State::kAdding;
  return record();
}

// What the others have added, or what the root has.
Status PeerBackend::take() {
  const Members& members = members_.at(key_of(group_));
  auto* const output = static_cast<std::byte*>(call_.segments.front().output);
  if (output == nullptr) return barrier(State::kLeaving), Status::ok();
  const bool is_broadcast = call_.spec.what == Collective::kBroadcast;
  const auto element = static_cast<int64_t>(size_of(call_.spec.dtype));
  const auto adders =
      static_cast<size_t>(std::ranges::count_if(all_places_, [](int64_t p) { return p > 0; }));
  size_t index = 0;
  for (size_t member = 0; member < all_places_.size(); ++member) {
    const int64_t place = all_places_[member];
    if (place == 0) continue;
    const Share share = is_broadcast ? Share{.begin = 0, .count = call_.spec.count}
                                     : share_of(call_.spec.count, index++, adders);
    const auto me = static_cast<Rank>(member);
    if (me == group_.me || (is_broadcast && me != call_.spec.root)) continue;
    const Status copied = stream_->copy(output + share.begin * element,
                                        members.windows[member] + (place - 1) + share.begin * element,
                                        static_cast<size_t>(share.count * element));
    if (!copied.is_ok()) return copied;
  }
  state_ = State::kTaking;
  return record();
}

Status PeerBackend::record() {
  Result<std::shared_ptr<cuda::Event>> event = events_->take();
  if (!event.is_ok()) return event.status();
  event_ = std::move(event).value();
  will_wake_ = false;
  return stream_->record(*event_);
}

void PeerBackend::end(const Status& status) {
  if (!status.is_ok() && broken_.is_ok()) broken_ = status;
  state_ = State::kIdle;
  done_.push_back({.id = call_.id, .status = status, .how = "peer"});
}

bool PeerBackend::advance() {
  if (state_ == State::kIdle) return false;
  if (is_reading()) {
    const std::optional<Status> outcome = event_->outcome();
    if (!outcome) return false;
    if (!outcome->is_ok()) return end({Code::kUnavailable, outcome->why}), true;
    barrier(state_ == State::kAdding ? State::kSharing : State::kLeaving);
    return true;
  }
  if (!met_) return false;
  Status status = *std::exchange(met_, std::nullopt);
  const bool introduces = state_ == State::kIntroducing || state_ == State::kMapping;
  if (introduces) {
    if (status.is_ok()) return state_ == State::kIntroducing ? finish_introduction() : finish_mapping(), true;
    Members& members = members_[key_of(group_)];
    members.is_met = members.is_tried = true;
    members.why_not = status.why;
    broken_ = status;
    state_ = State::kIdle;
    return true;
  }
  const State state = state_;
  if (status.is_ok() && state == State::kGathering) status = enter_gathered();
  if (status.is_ok() && state == State::kSharing) status = take();
  if (!status.is_ok() || state == State::kLeaving || state == State::kGoneBack) end(status);
  return true;
}

bool PeerBackend::progress(std::vector<Done>& done) {
  bool moved = false;
  if (!host_->is_idle()) moved = host_->progress(host_done_);
  for (Done& each : std::exchange(host_done_, {})) {
    if ((each.id & kMeeting) == 0)
      done.push_back(std::move(each));
    else if (each.id == meeting_)
      met_ = each.status;
  }
  while (advance()) moved = true;
  for (Done& each : std::exchange(done_, {})) {
    done.push_back(std::move(each));
    moved = true;
  }
  return moved;
}

bool PeerBackend::prepare_sleep() {
  if (!done_.empty()) return false;
  if (is_reading() && !std::exchange(will_wake_, true) && !stream_->call(options_.wake).is_ok()) return false;
  return host_->prepare_sleep();
}

bool PeerBackend::is_mine(CallId call) const {
  return state_ != State::kIdle && state_ != State::kIntroducing && state_ != State::kMapping &&
         call_.id == call;
}

// In a later state all members have started the call.
std::vector<int32_t> PeerBackend::pause(CallId call) {
  if (!is_mine(call)) return host_->pause(call);
  return state_ == State::kGathering ? host_->pause(meeting_) : std::vector<int32_t>();
}

void PeerBackend::resume(CallId call) {
  if (!is_mine(call)) return host_->resume(call);
  if (state_ == State::kGathering) host_->resume(meeting_);
}

void PeerBackend::take_back(CallId call, std::span<const int32_t> arrivals) {
  if (!is_mine(call)) return host_->take_back(call, arrivals);
  RUEDA_CHECK(state_ == State::kGathering, "a call that all members have started runs");
  state_ = State::kGoneBack;
  host_->take_back(meeting_, arrivals);
}

void PeerBackend::discard(const Call& call, std::span<const int32_t> arrivals) {
  if (!is_on_slots(call)) return host_->discard(call, arrivals);
  call_ = call;
  group_ = *call.group;
  const Call meeting = gathering();
  state_ = State::kGoneBack;
  host_->discard(meeting, arrivals);
}

void PeerBackend::abort(const Status& why) {
  broken_ = why;
  host_->abort(why);
  const Deadline deadline = Deadline::after(kPeerAbortWait);
  while (is_reading() && !event_->outcome() && !deadline.is_past()) sched_yield();
  state_ = State::kIdle;
  done_.clear();
}

}  // namespace rueda::backend
