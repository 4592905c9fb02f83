#include "rueda/runtime/rendezvous_point.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "rueda/backend/mpi/find.h"
#include "rueda/base/limits.h"
#include "rueda/base/release.h"
#include "rueda/base/sleep.h"
#include "rueda/membership/keys.h"
#include "rueda/runtime/init_words.h"
#include "rueda/store/arrived.h"

namespace rueda::runtime {
namespace {

constexpr Nanos kFirstPause = 2 * kMillisecond;
constexpr Nanos kLongestPause = 100 * kMillisecond;
constexpr Nanos kRefusalWait = kSecond;
constexpr Epoch kMostMissed = 64;
constexpr Epoch kInitsOfView = Epoch{1} << 20;  // more than a process makes in one view

std::string site_of(const store::World& world) {
  return world.launcher + "|" + world.job + "|" + world.url + "|" + world.seed_host;
}

std::string identity_of(const store::World& world) {
  return site_of(world) + "|" + std::to_string(world.rank) + "|" + std::to_string(world.size);
}

// As TableEntry has it.
Rank host_size_of(const store::World& world) { return std::max(world.local_size, 0); }

}  // namespace

Result<store::World> RendezvousPoint::complete(store::World detected, Deadline deadline) {
  const std::string identity = identity_of(detected);
  if (identity == detected_) return completed_;
  detected.is_space_shared = detected.method == store::World::Method::kPmi && backend::mpi::is_mpi_running();
  Result<store::World> completed = store::complete_world(std::move(detected), deadline);
  if (!completed.is_ok()) return completed;
  detected_ = identity;
  completed_ = completed.value();
  return completed;
}

Status RendezvousPoint::open(const store::World& world, const std::string& interface, Deadline deadline) {
  const bool serves_as_before = world.is_elastic || (world.rank == 0) == (world_.rank == 0);
  const bool is_same_place = rendezvous_.store && site_of(world) == site_of(world_) && serves_as_before;
  if (!is_same_place) {
    rendezvous_ = {};
    prefixed_ = nullptr;
    Result<store::Rendezvous> opened =
        store::open_rendezvous(world, interface, kRelease, deadline, is_interrupted_);
    if (!opened.is_ok()) return opened.status();
    rendezvous_ = std::move(opened).value();
    if (world.is_elastic) see_one_view();
    // The launcher tells the user who is missing. Nothing depends on it.
    if (world.is_store_served && (!world.is_elastic || world.view == 1))
      log_failure(rendezvous_.store->announce({store::kArrived, world.rank, "", host_size_of(world)},
                                              within(deadline, kInitTell)));
  }
  world_ = world;
  interface_ = interface;
  return Status::ok();
}

void RendezvousPoint::see_one_view() {
  auto prefixed = std::make_unique<store::PrefixedStore>(std::move(rendezvous_.store));
  prefixed_ = prefixed.get();
  prefixed_->use(membership::exchange_prefix(view_));
  rendezvous_.store = std::move(prefixed);
}

void RendezvousPoint::enter_view(int64_t view) {
  if (std::exchange(view_, view) == view) return;
  if (prefixed_ != nullptr) prefixed_->use(membership::exchange_prefix(view));
  if (view > 1) last_closed_ = number_ = std::max(number_, Epoch{view} * kInitsOfView);
  has_left_refusal_ = false;
  lost_.reset();
}

Result<Epoch> RendezvousPoint::next_number(Deadline deadline) {
  bool is_refusal_told = false;  // the next failed exchange failed by this rank's own refusal
  if (std::exchange(has_left_refusal_, false)) {
    is_refusal_told = !rendezvous_.store->try_get(kRefusalKey, within(deadline, kInitTell)).is_ok();
    log_failure(rendezvous_.store->remove_prefix(kRefusalKey, within(deadline, kInitTell)));
  }
  return world_.rank == 0 ? choose_number(deadline) : await_number(is_refusal_told, deadline);
}

// The first exchange, up to the announced one, in which this rank has not taken part: it is open, or it
// failed before this rank came. So the n-th init of every rank is the same exchange. 0: there is none.
Epoch RendezvousPoint::first_missed(Epoch announced, bool& is_refusal_told, Deadline deadline) {
  for (Epoch number = std::max(number_, announced - kMostMissed) + 1; number <= announced; ++number) {
    const std::string failed = failed_key_of(prefix_of(number));
    const bool is_failed = (number < announced || is_refusal_told) &&
                           rendezvous_.store->try_get(failed, within(deadline, kInitTell)).is_ok();
    if (is_failed && std::exchange(is_refusal_told, false))
      number_ = number;
    else if (is_failed || number == announced)
      return number;
  }
  return 0;
}

Result<Epoch> RendezvousPoint::choose_number(Deadline deadline) {
  store::Store& store = *rendezvous_.store;
  Epoch last = number_;
  for (const std::string_view key : {kExchangeKey, kLeastKey}) {
    const Result<std::string> text = store.try_get(key, deadline);
    if (!text.is_ok() && text.status().code != Code::kUnavailable) return text.status();
    if (text.is_ok()) last = std::max(last, parse_announced(text.value()).number);
  }
  const std::string announced = open_exchange(last + 1);
  if (Status s = store.set(kExchangeKey, announced, deadline); !s.is_ok()) return s;
  store::forget_failed_run(rendezvous_.lease);
  return number_ = last + 1;
}

Result<Epoch> RendezvousPoint::await_number(bool is_refusal_told, Deadline deadline) {
  Status last(Code::kTimeout, "rank 0 of " + std::to_string(world_.size) +
                                  " did not call init in time (met at " + rendezvous_.store->description() +
                                  "); start every rank, or raise RUEDA_START_TIMEOUT.");
  Nanos pause = kFirstPause;
  Nanos look_elsewhere_at = monotonic_now() + kInitSlice;
  bool has_objected = false;
  while (true) {
    const Result<std::string> text =
        rendezvous_.store->get_shared(kExchangeKey, kInitLook, within(deadline, kInitSlice));
    if (text.is_ok()) {
      const Announced announced = parse_announced(text.value());
      const Epoch missed = announced.is_open ? first_missed(announced.number, is_refusal_told, deadline) : 0;
      if (missed > 0) return number_ = missed;
      // A rank 0 that is new to the job may count from one again.
      if (announced.is_open && announced.number <= number_ && !std::exchange(has_objected, true))
        log_failure(rendezvous_.store->set(kLeastKey, std::to_string(number_), within(deadline, kInitTell)));
    } else if (text.status().code == Code::kPermissionDenied) {
      return text.status();
    } else if (text.status().code != Code::kTimeout) {
      last = text.status();
    }
    if (deadline.is_past()) return last;
    if (store::is_set(is_interrupted_)) return store::interrupted_status();
    if (monotonic_now() >= look_elsewhere_at) {
      if (const auto ended = find_ended(*rendezvous_.store, world_.size, within(deadline, kInitTell)))
        return why_ended(*ended, text.is_ok() ? parse_announced(text.value()).number : 0);
      look_elsewhere();
      look_elsewhere_at = monotonic_now() + kInitSlice;
    }
    sleep_for(std::min(pause, std::max<Nanos>(deadline.when() - monotonic_now(), 0)));
    pause = std::min(2 * pause, kLongestPause);
  }
}

// The exchange that was announced last may have failed, and been closed, before this rank came.
Status RendezvousPoint::why_ended(const store::EndedRank& ended, Epoch announced) const {
  const std::string failed = failed_key_of(prefix_of(announced));
  const Status has_ended = never_came(ended);
  if (announced <= number_) return cause_of(has_ended, *rendezvous_.store, {kRefusalKey});
  return cause_of(has_ended, *rendezvous_.store, {failed, kRefusalKey});
}

// Another process may be rank 0 now and serve the store elsewhere. A store over TCP dials again by itself.
void RendezvousPoint::look_elsewhere() {
  if (world_.method != store::World::Method::kUrl || !world_.url.starts_with("file:")) return;
  Result<store::Rendezvous> opened =
      store::open_rendezvous(world_, interface_, kRelease, Deadline::after(kInitSlice));
  if (opened.is_ok()) rendezvous_ = std::move(opened).value();
}

void RendezvousPoint::close_exchange() {
  const std::string closed = closed_exchange(number_);
  store::Store& store = *rendezvous_.store;
  log_failure(store.set(kExchangeKey, closed, Deadline::after(kInitTell)));
  const Epoch oldest = std::max({last_closed_, number_ - kMostMissed, Epoch{1}});
  for (Epoch number = oldest; number < number_; ++number)
    log_failure(store.remove_prefix(prefix_of(number), Deadline::after(kInitTell)));
  last_closed_ = number_;
}

void RendezvousPoint::refuse(const Status& why) {
  const Result<Epoch> number = next_number(Deadline::after(world_.rank == 0 ? kInitTell : kRefusalWait));
  note_failure(why);
  if (number.is_ok()) {
    InitExchange exchange(*rendezvous_.store, number.value(), world_.rank, world_.size,
                          Deadline::after(kInitTell));
    log_failure(exchange.settle(why));
    return;
  }
  const std::string text = "rank " + std::to_string(world_.rank) + ": " + why.why;
  log_failure(rendezvous_.store->set(kRefusalKey, text, Deadline::after(kInitTell)));
  has_left_refusal_ = true;
}

void RendezvousPoint::note_failure(const Status& why) {
  store::note_failed_run(rendezvous_.lease, told_by_another(why).value_or("rank 0: " + why.why));
}

const LostRank* RendezvousPoint::loss(const store::World& world) const {
  return lost_ && lost_->size == world.size ? &*lost_ : nullptr;
}

}  // namespace rueda::runtime
