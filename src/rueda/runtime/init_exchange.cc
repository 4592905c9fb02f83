#include "rueda/runtime/init_exchange.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <initializer_list>
#include <utility>

#include "rueda/backend/mpi/find.h"
#include "rueda/base/limits.h"
#include "rueda/base/log.h"
#include "rueda/base/release.h"
#include "rueda/base/sleep.h"
#include "rueda/control/mismatch.h"
#include "rueda/membership/keys.h"
#include "rueda/runtime/peer_table.h"
#include "rueda/store/arrived.h"

namespace rueda::runtime {
namespace {

constexpr Nanos kSlice = 250 * kMillisecond;  // between looks for a failure of others
constexpr Rank kOftenLooking = 64;            // of more ranks each looks less often: one store answers all
constexpr Nanos kLongestSlice = 2 * kSecond;
constexpr Nanos kFirstPause = 2 * kMillisecond;
constexpr Nanos kLongestPause = 100 * kMillisecond;
constexpr Nanos kLook = 20 * kMillisecond;  // how old an answer may be that the ranks of a host share
constexpr Nanos kTell = 2 * kSecond;        // for one answer of a store that may be gone
constexpr Nanos kRefusalWait = kSecond, kCauseWait = kSecond;
constexpr Epoch kMostMissed = 64;
constexpr Epoch kInitsOfView = Epoch{1} << 20;  // more than a process makes in one view
constexpr size_t kNamed = 8;                    // ranks that have not come

// "<number> open" while ranks may still come, "<number> closed" afterwards.
constexpr std::string_view kExchangeKey = "exchange";
constexpr std::string_view kOpen = " open";
// The largest number under which a rank has met and that rank 0 does not know.
constexpr std::string_view kLeastKey = "exchange-least";
// The refusal of a rank that came before rank 0.
constexpr std::string_view kRefusalKey = "exchange-refused";

struct Announced {
  Epoch number = 0;
  bool is_open = false;
};

Announced parse_announced(std::string_view text) {
  Announced announced;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), announced.number);
  announced.is_open = error == std::errc() && text.substr(static_cast<size_t>(end - text.data())) == kOpen;
  return announced;
}

std::string site_of(const store::World& world) {
  return world.launcher + "|" + world.job + "|" + world.url + "|" + world.seed_host;
}

std::string identity_of(const store::World& world) {
  return site_of(world) + "|" + std::to_string(world.rank) + "|" + std::to_string(world.size);
}

std::string prefix_of(Epoch number) { return "init" + std::to_string(number) + "/"; }

// As TableEntry has it.
Rank host_size_of(const store::World& world) { return std::max(world.local_size, 0); }

Deadline soon(Deadline deadline, Nanos at_most) {
  return Deadline::at(std::min(deadline.when(), monotonic_now() + at_most));
}

// The rank of this world that will not come, because its launcher says that it has ended. Whoever asks reads
// what the rank has told about a failure after this: it tells before it ends.
std::optional<store::EndedRank> find_ended(store::Store& store, Rank size, Deadline deadline) {
  const Result<std::string> text = store.try_get_shared(store::kEndedKey, kLook, deadline);
  const auto ended = text.is_ok() ? store::parse_ended(text.value()) : std::nullopt;
  return ended && ended->size == size ? ended : std::nullopt;
}

Status never_came(const store::EndedRank& ended) {
  return {Code::kUnavailable, ended.how +
                                  ", so it does not take part in this init; its output may say why. Every "
                                  "rank has to call init."};
}

Status left_early(const store::EndedRank& ended) {
  return {Code::kUnavailable, ended.how +
                                  " before all ranks were connected, so this init failed; its output may say "
                                  "why."};
}

constexpr std::string_view kEcho = "another rank could not initialize: ";

Status echo_of(const std::string& first) { return {Code::kUnavailable, std::string(kEcho) + first}; }

// What a rank has told of its failure, under one of these keys, or else that one has ended.
Status cause_of(const Status& has_ended, store::Store& store, std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) {
    const Result<std::string> told = store.try_get(key, Deadline::after(kTell));
    if (told.is_ok()) return echo_of(told.value());
  }
  return has_ended;
}

void log_failure(const Status& status) {
  if (!status.is_ok()) RUEDA_LOG(kDebug, status.why);
}

}  // namespace

Status not_back(const LostRank& lost, Nanos waited) {
  return {Code::kPeerLost, lost.who + " was lost before this init and has not come back within " +
                               std::to_string(waited / kSecond) +
                               " s; start it again and call init on every rank, or start the job again."};
}

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
                                              soon(deadline, kTell)));
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
    is_refusal_told = !rendezvous_.store->try_get(kRefusalKey, soon(deadline, kTell)).is_ok();
    log_failure(rendezvous_.store->remove_prefix(kRefusalKey, soon(deadline, kTell)));
  }
  return world_.rank == 0 ? choose_number(deadline) : await_number(is_refusal_told, deadline);
}

// The first exchange, up to the announced one, in which this rank has not taken part: it is open, or it
// failed before this rank came. So the n-th init of every rank is the same exchange. 0: there is none.
Epoch RendezvousPoint::first_missed(Epoch announced, bool& is_refusal_told, Deadline deadline) {
  for (Epoch number = std::max(number_, announced - kMostMissed) + 1; number <= announced; ++number) {
    const std::string failed = prefix_of(number) + "failed";
    const bool is_failed = (number < announced || is_refusal_told) &&
                           rendezvous_.store->try_get(failed, soon(deadline, kTell)).is_ok();
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
  const std::string announced = std::to_string(last + 1) + std::string(kOpen);
  if (Status s = store.set(kExchangeKey, announced, deadline); !s.is_ok()) return s;
  store::forget_failed_run(rendezvous_.lease);
  return number_ = last + 1;
}

Result<Epoch> RendezvousPoint::await_number(bool is_refusal_told, Deadline deadline) {
  Status last(Code::kTimeout, "rank 0 of " + std::to_string(world_.size) +
                                  " did not call init in time (met at " + rendezvous_.store->description() +
                                  "); start every rank, or raise RUEDA_START_TIMEOUT.");
  Nanos pause = kFirstPause;
  Nanos look_elsewhere_at = monotonic_now() + kSlice;
  bool has_objected = false;
  while (true) {
    const Result<std::string> text =
        rendezvous_.store->get_shared(kExchangeKey, kLook, soon(deadline, kSlice));
    if (text.is_ok()) {
      const Announced announced = parse_announced(text.value());
      const Epoch missed = announced.is_open ? first_missed(announced.number, is_refusal_told, deadline) : 0;
      if (missed > 0) return number_ = missed;
      // A rank 0 that is new to the job may count from one again.
      if (announced.is_open && announced.number <= number_ && !std::exchange(has_objected, true))
        log_failure(rendezvous_.store->set(kLeastKey, std::to_string(number_), soon(deadline, kTell)));
    } else if (text.status().code == Code::kPermissionDenied) {
      return text.status();
    } else if (text.status().code != Code::kTimeout) {
      last = text.status();
    }
    if (deadline.is_past()) return last;
    if (store::is_set(is_interrupted_)) return store::interrupted_status();
    if (monotonic_now() >= look_elsewhere_at) {
      if (const auto ended = find_ended(*rendezvous_.store, world_.size, soon(deadline, kTell)))
        return why_ended(*ended, text.is_ok() ? parse_announced(text.value()).number : 0);
      look_elsewhere();
      look_elsewhere_at = monotonic_now() + kSlice;
    }
    sleep_for(std::min(pause, std::max<Nanos>(deadline.when() - monotonic_now(), 0)));
    pause = std::min(2 * pause, kLongestPause);
  }
}

// The exchange that was announced last may have failed, and been closed, before this rank came.
Status RendezvousPoint::why_ended(const store::EndedRank& ended, Epoch announced) const {
  const std::string failed = prefix_of(announced) + "failed";
  const Status has_ended = never_came(ended);
  if (announced <= number_) return cause_of(has_ended, *rendezvous_.store, {kRefusalKey});
  return cause_of(has_ended, *rendezvous_.store, {failed, kRefusalKey});
}

// Another process may be rank 0 now and serve the store elsewhere. A store over TCP dials again by itself.
void RendezvousPoint::look_elsewhere() {
  if (world_.method != store::World::Method::kUrl || !world_.url.starts_with("file:")) return;
  Result<store::Rendezvous> opened =
      store::open_rendezvous(world_, interface_, kRelease, Deadline::after(kSlice));
  if (opened.is_ok()) rendezvous_ = std::move(opened).value();
}

void RendezvousPoint::close_exchange() {
  const std::string closed = std::to_string(number_) + " closed";
  store::Store& store = *rendezvous_.store;
  log_failure(store.set(kExchangeKey, closed, Deadline::after(kTell)));
  const Epoch oldest = std::max({last_closed_, number_ - kMostMissed, Epoch{1}});
  for (Epoch number = oldest; number < number_; ++number)
    log_failure(store.remove_prefix(prefix_of(number), Deadline::after(kTell)));
  last_closed_ = number_;
}

void RendezvousPoint::refuse(const Status& why) {
  const Result<Epoch> number = next_number(Deadline::after(world_.rank == 0 ? kTell : kRefusalWait));
  note_failure(why);
  if (number.is_ok()) {
    InitExchange exchange(*rendezvous_.store, number.value(), world_.rank, world_.size,
                          Deadline::after(kTell));
    log_failure(exchange.settle(why));
    return;
  }
  const std::string text = "rank " + std::to_string(world_.rank) + ": " + why.why;
  log_failure(rendezvous_.store->set(kRefusalKey, text, Deadline::after(kTell)));
  has_left_refusal_ = true;
}

void RendezvousPoint::note_failure(const Status& why) {
  const bool is_echo = why.why.starts_with(kEcho);
  store::note_failed_run(rendezvous_.lease, is_echo ? why.why.substr(kEcho.size()) : "rank 0: " + why.why);
}

const LostRank* RendezvousPoint::loss(const store::World& world) const {
  return lost_ && lost_->size == world.size ? &*lost_ : nullptr;
}

InitExchange::InitExchange(store::Store& store, Epoch number, Rank me, Rank size, Deadline deadline,
                           const LostRank* lost, Nanos return_time)
    : store_(store),
      number_(number),
      prefix_(prefix_of(number)),
      given_(store, prefix_),
      me_(me),
      size_(size),
      deadline_(deadline),
      lost_(lost),
      slice_(std::clamp(size / kOftenLooking * kSlice, kSlice, kLongestSlice)),
      return_time_(return_time),
      return_deadline_(std::min(deadline.when(), monotonic_now() + return_time)) {}

Status InitExchange::publish(const PeerInfo& info) {
  const Bytes raw = encode(info);
  const std::string_view text(reinterpret_cast<const char*>(raw.data()), raw.size());
  return store_.give({prefix_, me_, text, std::max(info.local_size, 0)}, deadline_);
}

Status InitExchange::gather(std::vector<PeerInfo>& all) {
  const Status gathered = me_ == 0 ? make_table(all) : read_table(all);
  if (gathered.is_ok() && wait_ != nullptr) wait_->found({}, monotonic_now());
  return gathered;
}

// All ranks before it have been found.
Status InitExchange::find(Rank rank) {
  unsigned tries = 0;
  const auto get = [&](Deadline deadline) -> Result<std::string> {
    if (++tries > 1 && std::has_single_bit(tries)) given_.look_again(kSlice);
    if (given_.has(rank)) return std::string();
    return store_.get(given_.key(rank), deadline);
  };
  const Result<std::string> batch = given_.has(rank) ? std::string() : await(get);
  if (!batch.is_ok()) return batch.status();
  return given_.has(rank) ? Status::ok() : given_.take(rank, batch.value());
}

Status InitExchange::make_table(std::vector<PeerInfo>& all) {
  for (Rank rank = 0; rank < size_; ++rank) {
    if (Status s = find(rank); !s.is_ok()) return s;
    Result<PeerInfo> info = decode_peer_info(std::as_bytes(std::span(given_.entry(rank))));
    if (!info.is_ok()) return info.status();
    all.push_back(std::move(info).value());
  }
  const std::vector<Bytes> parts = parts_of(encode_table(all), kMaxStoreValueBytes);
  for (size_t i = parts.size(); i-- > 0;) {  // the first one is what the others wait for
    const std::string_view value(reinterpret_cast<const char*>(parts[i].data()), parts[i].size());
    if (Status s = store_.set(table_key(i), value, deadline_); !s.is_ok()) return s;
  }
  return Status::ok();
}

Status InitExchange::read_table(std::vector<PeerInfo>& all) {
  Bytes table;
  size_t count = 1;
  for (size_t i = 0; i < count; ++i) {
    const Result<std::string> part =
        await([&](Deadline deadline) { return store_.get_shared(table_key(i), store::kAnyAge, deadline); });
    if (!part.is_ok()) return part.status();
    const Result<size_t> parts = append_part(table, std::as_bytes(std::span(part.value())));
    if (!parts.is_ok()) return parts.status();
    count = parts.value();
  }
  Result<std::vector<PeerInfo>> read = decode_table(table);
  if (!read.is_ok()) return read.status();
  all = std::move(read).value();
  return all.size() == static_cast<size_t>(size_) ? Status::ok() : unequal_sizes(all.size());
}

// As check_agreement() says it: rank 0 was told another size than this rank.
Status InitExchange::unequal_sizes(size_t of_rank_0) const {
  return {Code::kInvalidArgument, "rank 0 was told that the world has " + std::to_string(of_rank_0) +
                                      " ranks, but this rank was told " + std::to_string(size_) +
                                      "; give all ranks the same RUEDA_SIZE."};
}

Status InitExchange::interrupted() {
  if (store::is_set(is_interrupted_)) return store::interrupted_status();
  if (server_ != nullptr)
    if (std::string other = server_->other_build_since(began_); !other.empty())
      return {Code::kPermissionDenied, std::move(other)};
  const auto ended = find_ended(store_, size_, Deadline::after(kTell));
  // What a rank has told before it ended must not be missed.
  if (Status s = check_others(ended ? 0 : kLook); !s.is_ok()) return s;
  return ended ? check_ended(*ended) : Status::ok();
}

Status InitExchange::check_others(Nanos age) {
  const auto echo = [this](const std::string& first) {
    is_told_ = true;
    return echo_of(first);
  };
  const Result<std::string> failed = store_.try_get_shared(prefix_ + "failed", age, Deadline::after(kTell));
  if (failed.is_ok()) return echo(failed.value());
  if (me_ == 0) {
    const Result<std::string> refusal = store_.try_get(kRefusalKey, Deadline::after(kTell));
    if (refusal.is_ok()) {
      log_failure(store_.set(prefix_ + "failed", refusal.value(), Deadline::after(kTell)));
      log_failure(store_.remove_prefix(kRefusalKey, Deadline::after(kTell)));
      return echo(refusal.value());
    }
  }
  const auto other = store_.try_get_shared(me_ == 0 ? kLeastKey : kExchangeKey, age, Deadline::after(kTell));
  const Epoch number = other.is_ok() ? parse_announced(other.value()).number : 0;
  is_superseded_ = me_ == 0 ? number >= number_ : number > number_;
  if (!is_superseded_) return Status::ok();
  return {Code::kUnavailable, "other ranks of this job have begun init exchange " + std::to_string(number) +
                                  " without this one."};
}

Status InitExchange::settle(const Status& mine) {
  // If a channel broke, its other end may have closed it for a cause that it is about to tell.
  const Deadline deadline = Deadline::after(mine.code == Code::kPeerLost ? kCauseWait : 0);
  while (!is_told_ && !deadline.is_past()) {
    const Status cause = interrupted();
    if (is_told_) return settle(cause);
    sleep_for(5 * kMillisecond);
  }
  const Result<int64_t> order = store_.add(prefix_ + "failures", 1, Deadline::after(kTell));
  if (is_told_) return mine;
  // Whoever gave up because of that closed its connections too, and is not the cause.
  if (is_store_of_rank_0_ && order.status().code == Code::kPeerLost && mine.code == Code::kPeerLost)
    return {
        Code::kPeerLost,
        "rank 0, which serves the store of this init, has ended; its output may say why. Here: " + mine.why};
  if (order.is_ok() && order.value() > 1) {
    const Result<std::string> first = store_.get(prefix_ + "failed", Deadline::after(kTell));
    if (first.is_ok()) return echo_of(first.value());
    return mine;  // the first rank could not tell its failure
  }
  const std::string text = "rank " + std::to_string(me_) + ": " + mine.why;
  log_failure(store_.set(prefix_ + "failed", text, Deadline::after(kTell)));
  return mine;
}

void InitExchange::await_readers(Nanos at_most) {
  const Deadline deadline = Deadline::after(at_most);
  while (!deadline.is_past()) {
    const Result<int64_t> count = store_.add(prefix_ + "failures", 0, deadline);
    if (!count.is_ok() || count.value() >= size_) return;
    sleep_for(5 * kMillisecond);
  }
}

Result<std::string> InitExchange::await(const std::function<Result<std::string>(Deadline)>& get) {
  while (true) {
    Result<std::string> raw = get(soon(deadline_, slice_));
    if (raw.is_ok() || raw.status().code != Code::kTimeout) return raw;
    if (Status s = interrupted(); !s.is_ok()) return s;
    if (Status s = check_lost(); !s.is_ok()) return s;
    tell_missing();
    if (deadline_.is_past()) return nobody_else_came();
  }
}

Status InitExchange::nobody_else_came() {
  std::vector<Rank> ranks = given_.missing(kNamed + 1, size_, kSlice);
  if (ranks.empty())
    return {Code::kTimeout,
            "all ranks have called init, but rank 0 has not told them of one another in time "
            "(met at " +
                store_.description() + "); look at rank 0, or raise RUEDA_START_TIMEOUT."};
  const bool is_cut = ranks.size() > kNamed;
  if (is_cut) ranks.pop_back();
  return {Code::kTimeout, control::rank_list(ranks) + (is_cut ? ", …" : "") + " of " + std::to_string(size_) +
                              " did not call init in time (met at " + store_.description() +
                              "); start every rank, or raise RUEDA_START_TIMEOUT."};
}

// All ranks read this from the launcher, so nobody needs to tell the others. A rank that ended without a
// number has left its refusal for rank 0, which may not have passed it on yet. If another process has taken
// part, it is a successor of the one that ended, or the program that the launcher started runs it as a child.
Status InitExchange::check_ended(const store::EndedRank& ended) {
  const Result<std::string> raw = given_.newest(ended.rank, soon(deadline_, kTell));
  if (raw.is_ok()) {
    const Result<PeerInfo> info = decode_peer_info(std::as_bytes(std::span(raw.value())));
    if (!info.is_ok() || info.value().pid != ended.pid) return Status::ok();
  }
  is_told_ = true;
  return cause_of(raw.is_ok() ? left_early(ended) : never_came(ended), store_, {kRefusalKey});
}

Status InitExchange::check_lost() {
  if (lost_ == nullptr || monotonic_now() < return_deadline_) return Status::ok();
  if (given_.newest(lost_->rank, soon(deadline_, kTell)).is_ok()) return Status::ok();
  return not_back(*lost_, return_time_);
}

void InitExchange::tell_missing() {
  if (wait_ == nullptr || !wait_->is_due(monotonic_now())) return;
  const Rank end = me_ == 0 || size_ <= InitWait::kSmallWorld ? size_ : 1;
  wait_->found(given_.missing(static_cast<size_t>(end), end, kSlice), monotonic_now());
  wait_->say(monotonic_now());
}

}  // namespace rueda::runtime
