#include "rueda/backend/device/peer.h"

#include <sched.h>

#include <algorithm>
#include <utility>

#include "rueda/base/check.h"
#include "rueda/base/clock.h"

namespace rueda::backend {
namespace {

constexpr Nanos kPeerAbortWait = 2 * kSecond;  // as StagedBackend waits for its copies

}  // namespace

PeerExchange::PeerExchange(Backend& host, const std::shared_ptr<cuda::Devices>& devices, PeerOptions options)
    : options_(std::move(options)),
      window_(devices, options_.section_bytes, options_.local_rank),
      sync_(host),
      setup_(options_, devices != nullptr, window_, sync_) {}

PeerExchange::~PeerExchange() {
  if (event_ != nullptr && !event_->outcome().has_value()) window_.abandon();
}

bool PeerExchange::takes(const Call& call) {
  return !call.segments.empty() && call.segments.front().memory.kind == MemoryKind::kDevice;
}

void PeerExchange::prepare(const Call& call) {
  RUEDA_CHECK(!is_busy(), "one call on slots runs at a time");
  call_ = call;
  group_ = *call.group;
  places_.assign(group_.members.size(), 0);
  all_places_.assign(group_.members.size(), 0);
  const Segment& mine = call_.segments.front();
  if (mine.output != nullptr)
    places_[static_cast<size_t>(group_.me)] = static_cast<const std::byte*>(mine.output) - window_.data() + 1;
  segment_ = {.input = places_.data(), .output = all_places_.data(), .count = std::ssize(places_)};
}

void PeerExchange::start(const Call& call) {
  prepare(call);
  if (!broken_.is_ok()) return end(broken_);
  state_ = State::kGathering;
  sync_.begin(call_, group_, sum_spec(DType::kInt64, places_.size()), {&segment_, 1});
}

void PeerExchange::barrier(State state) {
  state_ = state;
  sync_.begin(call_, group_, {.what = Collective::kBarrier, .counts = {}, .scale = {}, .segment_counts = {}},
              {});
}

// All members have come, and their sections lie in their slots.
Status PeerExchange::enter_gathered() {
  const PeerMembers& members = setup_.members_of(group_);
  const auto bytes = static_cast<size_t>(call_.spec.count) * size_of(call_.spec.dtype);
  for (size_t member = 0; member < all_places_.size(); ++member) {
    const int64_t place = all_places_[member];
    if (place >= 0 && (place == 0 || static_cast<size_t>(place - 1) + bytes <= members.window_bytes[member]))
      continue;
    return {Code::kInternal, "rank " + std::to_string(group_.members[member]) +
                                 " named a place outside its window; please report it."};
  }
  return call_.spec.what == Collective::kBroadcast ? take_shares() : add();
}

// How many members have tensors.
size_t PeerExchange::adders() const {
  return static_cast<size_t>(std::ranges::count_if(all_places_, [](int64_t place) { return place > 0; }));
}

Status PeerExchange::add() {
  const PeerMembers& members = setup_.members_of(group_);
  std::byte* const output = static_cast<std::byte*>(call_.segments.front().output);
  size_t index = 0;
  for (Rank member = 0; member < group_.me; ++member) index += all_places_[static_cast<size_t>(member)] > 0;
  const ElementRange mine = share_of(call_.spec.count, index, std::max<size_t>(adders(), 1));
  if (output == nullptr || mine.count == 0) return barrier(State::kSharing), Status::ok();
  const auto offset = mine.begin * static_cast<int64_t>(size_of(call_.spec.dtype));
  std::vector<const void*> sources;
  for (size_t member = 0; member < all_places_.size(); ++member) {
    const int64_t place = all_places_[member];
    sources.push_back(place == 0 ? nullptr : members.windows[member] + (place - 1) + offset);
  }
  const Status added =
      window_.kernels().sum(window_.stream(), call_.spec.dtype, sources, output + offset,
                            static_cast<size_t>(mine.count), call_.prescale, call_.spec.scale);
  return added.is_ok() ? wait_for_device(State::kAdding) : added;
}

// What the others have added, or what the root has.
Status PeerExchange::take_shares() {
  const PeerMembers& members = setup_.members_of(group_);
  auto* const output = static_cast<std::byte*>(call_.segments.front().output);
  if (output == nullptr) return barrier(State::kLeaving), Status::ok();
  const bool is_broadcast = call_.spec.what == Collective::kBroadcast;
  const auto element = static_cast<int64_t>(size_of(call_.spec.dtype));
  size_t index = 0;
  for (size_t member = 0; member < all_places_.size(); ++member) {
    const int64_t place = all_places_[member];
    if (place == 0) continue;
    const ElementRange share = is_broadcast ? ElementRange{.begin = 0, .count = call_.spec.count}
                                            : share_of(call_.spec.count, index++, adders());
    const auto me = static_cast<Rank>(member);
    if (me == group_.me || (is_broadcast && me != call_.spec.root)) continue;
    const Status copied = window_.stream().copy(output + share.begin * element,
                                                members.windows[member] + (place - 1) + share.begin * element,
                                                static_cast<size_t>(share.count * element));
    if (!copied.is_ok()) return copied;
  }
  return wait_for_device(State::kTaking);
}

Status PeerExchange::wait_for_device(State state) {
  Result<std::shared_ptr<cuda::Event>> event = window_.record();
  if (!event.is_ok()) return event.status();
  event_ = std::move(event).value();
  will_wake_ = false;
  state_ = state;
  return Status::ok();
}

void PeerExchange::end(const Status& status) {
  if (!status.is_ok() && broken_.is_ok()) broken_ = status;
  state_ = State::kIdle;
  done_.push_back({.id = call_.id, .status = status, .how = "peer"});
}

bool PeerExchange::advance() {
  if (!is_busy()) return false;
  if (is_reading()) {
    const std::optional<Status> outcome = event_->outcome();
    if (!outcome) return false;
    if (!outcome->is_ok()) return end({Code::kUnavailable, outcome->why}), true;
    barrier(state_ == State::kAdding ? State::kSharing : State::kLeaving);
    return true;
  }
  const std::optional<Status> met = sync_.take_outcome();
  if (!met) return false;
  if (setup_.is_open()) {
    if (!met->is_ok()) broken_ = *met;
    setup_.go_on(*met);
    return true;
  }
  Status status = *met;
  const State state = state_;
  if (status.is_ok() && state == State::kGathering) status = enter_gathered();
  if (status.is_ok() && state == State::kSharing) status = take_shares();
  if (!status.is_ok() || state == State::kLeaving || state == State::kCancelled) end(status);
  return true;
}

bool PeerExchange::progress(std::vector<Done>& done) {
  bool moved = false;
  while (advance()) moved = true;
  for (Done& each : std::exchange(done_, {})) {
    done.push_back(std::move(each));
    moved = true;
  }
  return moved;
}

bool PeerExchange::prepare_sleep() {
  if (!done_.empty()) return false;
  return !is_reading() || std::exchange(will_wake_, true) || window_.stream().call(options_.wake).is_ok();
}

// In a later state all members have started the call.
std::vector<int32_t> PeerExchange::pause(CallId) {
  return state_ == State::kGathering ? sync_.cancellation().pause(sync_.id()) : std::vector<int32_t>();
}

void PeerExchange::resume(CallId) {
  if (state_ == State::kGathering) sync_.cancellation().resume(sync_.id());
}

void PeerExchange::cancel(CallId, std::span<const int32_t> arrivals) {
  RUEDA_CHECK(state_ == State::kGathering, "a call that all members have started runs");
  state_ = State::kCancelled;
  sync_.cancellation().cancel(sync_.id(), arrivals);
}

void PeerExchange::discard(const Call& call, std::span<const int32_t> arrivals) {
  prepare(call);
  state_ = State::kCancelled;
  sync_.discard(call_, group_, sum_spec(DType::kInt64, places_.size()), {&segment_, 1}, arrivals);
}

void PeerExchange::abort(const Status& why) {
  broken_ = why;
  const Deadline deadline = Deadline::after(kPeerAbortWait);
  while (is_reading() && !event_->outcome() && !deadline.is_past()) sched_yield();
  state_ = State::kIdle;
  setup_.abort();
  done_.clear();
}

}  // namespace rueda::backend
