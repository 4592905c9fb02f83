#include "rueda/control/order.h"

#include <algorithm>
#include <bit>
#include <variant>

#include "rueda/base/check.h"
#include "rueda/control/row_counts.h"

namespace rueda::control {
namespace {

// How many responses may overtake one whose backend is busy: enough to keep other backends at work.
constexpr size_t kLookAhead = 16;

Ordered call_of(const Bucket& bucket, BatchOrigin origin, uint64_t place, uint16_t generation) {
  return {.place = place,
          .process_set = bucket.process_set,
          .generation = generation,
          .origin = origin,
          .is_call = true,
          .starts_alone = bucket.what == Collective::kBarrier,
          .needs_rows = origin == BatchOrigin::kPlanned && has_varying_rows(bucket)};
}

}  // namespace

Order::Order(size_t backends) : backends_(backends) {
  RUEDA_CHECK(backends > 0 && backends <= 64, "the backends that are full are bits of a number");
}

const Ordered& Order::enqueue(const Response& response) {
  if (const auto* bucket = std::get_if<Bucket>(&response))
    return push(call_of(*bucket, BatchOrigin::kNegotiated, next_place_++, generation_));
  return push({.starts_alone = true});
}

const Ordered& Order::enqueue_planned(const Bucket& bucket, int64_t number) {
  return push(call_of(bucket, BatchOrigin::kPlanned, static_cast<uint64_t>(number), generation_));
}

const Ordered& Order::enqueue_discarded(const Bucket& bucket, int64_t number) {
  return push(call_of(bucket, BatchOrigin::kDiscarded, static_cast<uint64_t>(number), generation_));
}

const Ordered& Order::push(Ordered one) {
  if (free_.empty()) {
    one.key = next_key_++;
  } else {
    one.key = free_.back();
    free_.pop_back();
  }
  if (head_ > queue_.size() / 2) {  // so each is moved once on average
    queue_.erase(queue_.begin(), queue_.begin() + static_cast<ptrdiff_t>(head_));
    head_ = 0;
  }
  return queue_.emplace_back(one);
}

OrderAction Order::next() {
  seen_ = head_;
  full_ = 0;
  return look_on();
}

// No response overtakes another one of the same backend, or one that starts alone.
OrderAction Order::look_on() {
  if (seen_ == std::min(queue_.size(), head_ + kLookAhead)) return {};
  const Ordered& one = queue_[seen_];
  const bool is_first = seen_ == head_;
  if (is_held_up(one) || (one.starts_alone && !(is_first && running_.empty()))) return {};
  if (!one.is_call) return take(seen_, What::kAnswer);
  return {.what = What::kLook, .key = one.key, .is_first = is_first};
}

bool Order::awaits_rows(const Ordered& one) const {
  const auto tells_them = [&one](const Ordered& other) {
    return other.origin == BatchOrigin::kPlanned && other.generation == one.generation &&
           other.place + 1 == one.place;
  };
  return std::ranges::any_of(running_, tells_them) || std::ranges::any_of(waiting(), tells_them);
}

// A bucket that is cancelled uses its tensors until it ends, and a later call may have the same tensors.
// Once this rank has said how far it is in a plan, no bucket of the plan may start.
bool Order::is_held_up(const Ordered& one) const {
  if (one.origin == BatchOrigin::kDiscarded) return false;
  if (is_paused_ && one.origin == BatchOrigin::kPlanned) return true;
  if (one.needs_rows && awaits_rows(one)) return true;
  return std::ranges::any_of(running_, &Ordered::is_ending_bucket);
}

// Tensors that share memory with others keep their place in the queue. So what is earlier in the global order
// never waits for what is later, and ranks cannot wait for one another.
OrderAction Order::looked(const Readiness& seen) {
  if (seen.backend == Readiness::kNotHere) return take(seen_, What::kForget);
  const bool is_first = seen_ == head_;
  if (seen.memory == Readiness::Memory::kInUse || (seen.memory == Readiness::Memory::kFree && !is_first))
    return {};
  if (seen.backend == Readiness::kNoBackend) return take(seen_, What::kRefuse);
  RUEDA_CHECK(std::cmp_less(seen.backend, backends_), "backends are numbered");
  Ordered& one = queue_[seen_];
  one.backend = seen.backend;
  const uint64_t mine = uint64_t{1} << seen.backend;
  const bool is_overtaken = (full_ & mine) != 0;  // by this one, if it started
  if (!seen.has_room) full_ |= mine;
  if (one.starts_alone ? full_ != 0 : std::cmp_equal(std::popcount(full_), backends_)) return {};
  if (is_overtaken || !seen.has_room) {
    ++seen_;
    return look_on();
  }
  one.is_cancelled = one.origin == BatchOrigin::kDiscarded;
  return take(seen_, one.is_cancelled ? What::kDiscard : What::kStart);
}

OrderAction Order::take(size_t at, What what) {
  const auto place = queue_.begin() + static_cast<ptrdiff_t>(at);
  const Ordered one = *place;
  std::move_backward(queue_.begin() + static_cast<ptrdiff_t>(head_), place, place + 1);
  ++head_;
  if (what == What::kStart || what == What::kDiscard)
    running_.push_back(one);
  else
    free_.push_back(one.key);
  return {.what = what, .key = one.key};
}

bool Order::ended(OrderKey key) {
  const auto at = std::ranges::find(running_, key, &Ordered::key);
  RUEDA_CHECK(at != running_.end(), "only a call that runs can end");
  const bool has_result = !at->is_cancelled;
  running_.erase(at);
  free_.push_back(key);
  return has_result;
}

std::vector<OrderKey> Order::open_buckets() const {
  std::vector<OrderKey> open;
  for (const Ordered& one : running_)
    if (is_open(one)) open.push_back(one.key);
  return open;
}

std::vector<OrderKey> Order::pause() {
  is_paused_ = true;
  return open_buckets();
}

std::vector<OrderKey> Order::resume() {
  is_paused_ = false;
  return open_buckets();
}

OrderAction Order::cancel(int64_t number) {
  const auto is_it = [this, number](const Ordered& one) {
    return is_open(one) && std::cmp_equal(one.place, number);
  };
  for (size_t at = head_; at < queue_.size(); ++at)
    if (is_it(queue_[at])) return take(at, What::kForget);
  const auto at = std::ranges::find_if(running_, is_it);
  RUEDA_CHECK(at != running_.end(), "a bucket that all ranks have started is not cancelled");
  at->is_cancelled = true;
  return {.what = What::kCancel, .key = at->key};
}

void Order::set_generation(uint16_t generation) {
  generation_ = generation;
  next_place_ = 0;
}

void Order::clear() {
  for (const Ordered& one : waiting()) free_.push_back(one.key);
  for (const Ordered& one : running_) free_.push_back(one.key);
  queue_.clear();
  head_ = 0;
  running_.clear();
}

OrderAction Order::opening() const {
  if (!waiting().empty()) return {};
  if (running_.empty()) return {.what = What::kStart};
  const Ordered& last = running_.back();
  return {.what = last.starts_alone ? What::kNothing : What::kLook, .key = last.key};
}

int64_t Order::first_open_bucket(int64_t none) const {
  int64_t first = none;
  const auto look_at = [&](const Ordered& one) {
    if (is_open(one)) first = std::min(first, static_cast<int64_t>(one.place));
  };
  std::ranges::for_each(running_, look_at);
  std::ranges::for_each(waiting(), look_at);
  return first;
}

bool Order::is_in_world() const {
  const auto is_of_world = [](const Ordered& one) { return one.is_call && one.process_set == 0; };
  return std::ranges::any_of(running_, is_of_world) || std::ranges::any_of(waiting(), is_of_world);
}

}  // namespace rueda::control
