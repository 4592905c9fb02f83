#include "rueda/runtime/init_exchange.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "rueda/base/limits.h"
#include "rueda/base/sleep.h"
#include "rueda/control/mismatch.h"
#include "rueda/runtime/init_words.h"
#include "rueda/runtime/peer_table.h"

namespace rueda::runtime {
namespace {

constexpr Rank kOftenLooking = 64;  // of more ranks each looks less often: one store answers all
constexpr Nanos kLongestSlice = 2 * kSecond;
constexpr Nanos kCauseWait = kSecond;
constexpr Nanos kStoreGone = 2 * kSecond;  // a store that refuses connections for so long does not come back
constexpr size_t kNamed = 8;               // ranks that have not come

}  // namespace

Status not_back(const LostRank& lost, Nanos waited) {
  return {Code::kPeerLost, lost.who + " was lost before this init and has not come back within " +
                               std::to_string(waited / kSecond) +
                               " s; start it again and call init on every rank, or start the job again."};
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
      slice_(std::clamp(size / kOftenLooking * kInitSlice, kInitSlice, kLongestSlice)),
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
    if (++tries > 1 && std::has_single_bit(tries)) given_.look_again(kInitSlice);
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
  const auto ended = find_ended(store_, size_, Deadline::after(kInitTell));
  // What a rank has told before it ended must not be missed.
  const bool is_rank_0_over = is_rank_0_over_ && is_rank_0_over_();
  if (Status s = check_others(ended || is_rank_0_over ? 0 : kInitLook); !s.is_ok()) return s;
  if (ended) return check_ended(*ended);
  if (!is_rank_0_over) return Status::ok();
  is_told_ = true;
  return rank_0_has_ended({Code::kPeerLost, "nobody holds the lock of this run at " + store_.description()});
}

Status InitExchange::check_others(Nanos age) {
  const auto echo = [this](const std::string& first) {
    is_told_ = true;
    return echo_of(first);
  };
  const Result<std::string> failed =
      store_.try_get_shared(failed_key_of(prefix_), age, Deadline::after(kInitTell));
  if (failed.is_ok()) return echo(failed.value());
  if (Status s = check_store(failed.status()); !s.is_ok()) return s;
  if (me_ == 0) {
    const Result<std::string> refusal = store_.try_get(kRefusalKey, Deadline::after(kInitTell));
    if (refusal.is_ok()) {
      log_failure(store_.set(failed_key_of(prefix_), refusal.value(), Deadline::after(kInitTell)));
      log_failure(store_.remove_prefix(kRefusalKey, Deadline::after(kInitTell)));
      return echo(refusal.value());
    }
  }
  const auto other =
      store_.try_get_shared(me_ == 0 ? kLeastKey : kExchangeKey, age, Deadline::after(kInitTell));
  const Epoch number = other.is_ok() ? parse_announced(other.value()).number : 0;
  is_superseded_ = me_ == 0 ? number >= number_ : number > number_;
  if (!is_superseded_) return Status::ok();
  return {Code::kUnavailable, "other ranks of this job have begun init exchange " + std::to_string(number) +
                                  " without this one."};
}

// A rank that waits for others to connect would otherwise wait until its deadline.
Status InitExchange::check_store(const Status& answer) {
  if (!is_store_of_rank_0_ || answer.code == Code::kTimeout) return Status::ok();
  if (answer.code != Code::kPeerLost) {
    store_lost_at_.reset();
    return Status::ok();
  }
  const Nanos now = monotonic_now();
  if (!store_lost_at_) store_lost_at_ = now;
  if (now - *store_lost_at_ < kStoreGone) return Status::ok();
  is_told_ = true;
  return rank_0_has_ended(answer);
}

Status InitExchange::settle(const Status& mine) {
  // If a channel broke, its other end may have closed it for a cause that it is about to tell.
  const Deadline deadline = Deadline::after(mine.code == Code::kPeerLost ? kCauseWait : 0);
  while (!is_told_ && !deadline.is_past()) {
    const Status cause = interrupted();
    if (is_told_) return settle(cause);
    sleep_for(5 * kMillisecond);
  }
  if (is_told_) {
    count_reader();
    return mine;
  }
  const std::string text = "rank " + std::to_string(me_) + ": " + mine.why;
  const Result<std::string> first =
      store_.compare_and_set(failed_key_of(prefix_), "", text, Deadline::after(kInitTell));
  // Whoever gave up because of that closed its connections too, and is not the cause.
  if (is_store_of_rank_0_ && first.status().code == Code::kPeerLost && mine.code == Code::kPeerLost)
    return rank_0_has_ended(mine);
  if (first.is_ok()) count_reader();
  return first.is_ok() && first.value() != text ? echo_of(first.value()) : mine;
}

// Rank 0, which serves the store, waits for all of them.
void InitExchange::count_reader() {
  log_failure(store_.add(prefix_ + "failures", 1, Deadline::after(kInitTell)).status());
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
    Result<std::string> raw = get(within(deadline_, slice_));
    if (raw.is_ok() || raw.status().code != Code::kTimeout) return raw;
    if (Status s = interrupted(); !s.is_ok()) return s;
    if (Status s = check_lost(); !s.is_ok()) return s;
    tell_missing();
    if (deadline_.is_past()) return nobody_else_came();
  }
}

Status InitExchange::nobody_else_came() {
  std::vector<Rank> ranks = given_.missing(kNamed + 1, size_, kInitSlice);
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
  const Result<std::string> raw = given_.newest(ended.rank, within(deadline_, kInitTell));
  if (raw.is_ok()) {
    const Result<PeerInfo> info = decode_peer_info(std::as_bytes(std::span(raw.value())));
    if (!info.is_ok() || info.value().pid != ended.pid) return Status::ok();
  }
  is_told_ = true;
  return cause_of(raw.is_ok() ? left_early(ended) : never_came(ended), store_, {kRefusalKey});
}

Status InitExchange::check_lost() {
  if (lost_ == nullptr || monotonic_now() < return_deadline_) return Status::ok();
  if (given_.newest(lost_->rank, within(deadline_, kInitTell)).is_ok()) return Status::ok();
  return not_back(*lost_, return_time_);
}

void InitExchange::tell_missing() {
  if (wait_ == nullptr || !wait_->is_due(monotonic_now())) return;
  const Rank end = me_ == 0 || size_ <= InitWait::kSmallWorld ? size_ : 1;
  wait_->found(given_.missing(static_cast<size_t>(end), end, kInitSlice), monotonic_now());
  wait_->say(monotonic_now());
}

}  // namespace rueda::runtime
