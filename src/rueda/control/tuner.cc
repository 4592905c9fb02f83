#include "rueda/control/tuner.h"

#include <algorithm>
#include <array>

#include "rueda/control/numbered_name.h"

namespace rueda::control {
namespace {

constexpr size_t kMostPlanned = 1 << 14;          // tensors of a step that is tuned
constexpr int64_t kMostBytes = int64_t{1} << 40;  // of a tensor
constexpr double kLeastExposed = 0.01;  // of a pass; else communication is hidden, and buckets change nothing
constexpr double kDrift = 0.2;
constexpr int kPause = 5;            // times as long as a usual pass
constexpr int kMostInterrupted = 2;  // trials of one way
constexpr int kMostPauses = 3;       // in a row
constexpr size_t kMostKnown = 8;     // steps of one job

// Equal for the same calls in any order: that of answers varies from step to step.
std::vector<std::string> calls_of(const std::vector<SeenTensor>& step) {
  std::vector<std::string> calls;
  for (const SeenTensor& tensor : step) {
    std::string key = tensor.entry().name;
    if (const auto name = split_name(tensor.entry().name, tensor.entry().numbered_at)) name->put_key(key);
    calls.push_back(std::move(key) + '\0' + std::to_string(tensor.bytes) + ' ' +
                    std::to_string(tensor.bucket.process_set));
  }
  std::ranges::sort(calls);
  return calls;
}

}  // namespace

void RecentTimes::push(Nanos time) {
  times_[pushed_++ % kMost] = time;
  if (pushed_ > kMost && pushed_ % kLookEvery != 0) return;
  std::array<Nanos, kMost> copy = times_;
  median_ = median_of(std::span(copy).first(std::min(pushed_, kMost)));
}

std::vector<Nanos> RecentTimes::all() const {
  return {times_.begin(), times_.begin() + static_cast<std::ptrdiff_t>(std::min(pushed_, kMost))};
}

std::vector<Bucket> Tuner::learned(std::vector<SeenTensor> step, const SetMembers& sets) {
  plan_over();
  ways_.set_step(std::move(step), sets);
  if (!options_.is_on) return ways_.buckets_of(options_.first);
  recall(calls_of(ways_.step()));
  running_ = wanted_ = known_.best;
  best_buckets_ = ways_.buckets_of(known_.best);
  is_allowed_ = is_tunable();
  return best_buckets_;
}

// Ranks outside a process set may be many passes away when rank 0 stands between two, and numbers in names
// grow while a plan runs.
bool Tuner::is_tunable() const {
  const std::vector<SeenTensor>& step = ways_.step();
  return step.size() <= kMostPlanned && std::ranges::all_of(step, [this](const SeenTensor& tensor) {
           const Bucket& bucket = tensor.bucket;
           return bucket.process_set == 0 && tensor.entry().numbered_at == 0 && tensor.bytes <= kMostBytes &&
                  (options_.may_change_bits || traits_of_(0, bucket).keeps_order);
         });
}

// A job that trains and evaluates by turns has two steps.
void Tuner::recall(std::vector<std::string> calls) {
  if (!known_.calls.empty()) others_.push_back(std::exchange(known_, {}));
  const auto found = std::ranges::find(others_, calls, &Known::calls);
  if (found == others_.end()) {
    known_ = {.calls = std::move(calls), .best = options_.first, .tried = {}};
  } else {
    known_ = std::move(*found);
    others_.erase(found);
  }
  if (others_.size() > kMostKnown) others_.pop_front();
}

void Tuner::pass_begins(Nanos now) {
  if (!options_.is_on || !is_allowed_) return;
  if (options_.most_passes != 0 && passes_++ >= options_.most_passes) {
    trial_.reset();
    wanted_ = known_.best;
    return;
  }
  const Nanos began = std::exchange(pass_began_, now);
  if (began == 0) return;
  const Nanos period = now - began;
  if (is_pause(period)) return;
  trained_ += period;
  if (std::exchange(is_first_, false)) {
    const Nanos cost = recent_.is_empty() ? 0 : std::max<Nanos>(period - recent_.median(), 0);
    lost_ += cost;
    change_cost_ = (change_cost_ + cost) / 2;
  } else {
    if (running_ == known_.best) recent_.push(period);
    trial_ ? follow_trial(period) : watch();
  }
  if (trial_ && running_ == other_ && !is_within_budget(0)) end_trial(false);
}

void Tuner::exposed(Nanos time) {
  if (options_.is_on && is_allowed_) exposed_.push(time);
}

// A pass that evaluates, saves or waits for data first says nothing of buckets. Several in a row are no
// pauses: the job has become slower.
bool Tuner::is_pause(Nanos period) {
  if (recent_.is_empty() || period < kPause * recent_.median()) {
    pauses_ = 0;
    return false;
  }
  if (running_ != known_.best) lose(kPause * recent_.median());
  if (++pauses_ < kMostPauses) return true;
  pauses_ = 0;
  if (trial_) end_trial(false);
  recent_.clear();
  return true;
}

// A pass with buckets that are on trial has taken so long.
void Tuner::lose(Nanos period) { lost_ += std::max<Nanos>(period - recent_.median(), 0); }

void Tuner::watch() {
  if (wants_change() || running_ != known_.best) return;
  if (trained_ < options_.settle || !recent_.is_full() || !exposed_.is_full()) return;
  const auto hidden = static_cast<Nanos>(kLeastExposed * static_cast<double>(recent_.median()));
  if (exposed_.median() < hidden) return;
  if (known_.settled != 0 && has_drifted()) {
    known_.tried.clear();
    known_.settled = 0;
  }
  if (known_.settled == 0) begin_trial();
}

bool Tuner::has_drifted() const {
  const auto now = static_cast<double>(recent_.median()), then = static_cast<double>(known_.settled);
  return now > (1 + kDrift) * then || now < (1 - kDrift) * then;
}

bool Tuner::is_within_budget(Nanos loss) const {
  return static_cast<double>(lost_ + loss) <= options_.budget * static_cast<double>(trained_);
}

std::optional<BucketWay> Tuner::find_candidate() {
  for (const BucketWay& way : ways_.next_to(known_.best, best_buckets_)) {
    if (known_.tried.contains(way)) continue;
    other_buckets_ = ways_.buckets_of(way);
    if (!BucketWays::are_alike(other_buckets_, best_buckets_)) return way;
  }
  return std::nullopt;
}

// To find a candidate takes time, so it is not asked for before one can be tried.
void Tuner::begin_trial() {
  const Nanos loss = Trial::first_loss(options_.trial, recent_.median());
  if (!is_within_budget(loss + 2 * change_cost_)) return;
  const std::optional<BucketWay> way = find_candidate();
  if (!way) {
    known_.settled = recent_.median();
    return;
  }
  if (*way != other_) interrupted_ = 0;
  trial_.emplace(options_.trial, recent_.all());
  wanted_ = other_ = *way;
}

void Tuner::follow_trial(Nanos period) {
  using State = Trial::State;
  if (wants_change()) {  // it was asked for and has not happened yet
    if (running_ != known_.best) lose(period);
    return;
  }
  const bool is_due = trial_->state() == State::kOther ? running_ == other_ : running_ == known_.best;
  const Nanos lost_before = trial_->loss();
  if (is_due) trial_->passed(period);
  lost_ += trial_->loss() - lost_before;
  switch (trial_->state()) {
    case State::kOther:
      if (running_ == other_ || !is_within_budget(trial_->next_loss() + 2 * change_cost_)) return;
      trial_->put_off(recent_.all());
      wanted_ = other_;
      return;
    case State::kAsIs:
      wanted_ = known_.best;
      return;
    case State::kBetter:
      return end_trial(true);
    case State::kNotBetter:
      return end_trial(false);
  }
}

Tuner::Choice Tuner::choice(const BucketWay& way, std::span<const Bucket> buckets) const {
  return {.what = ways_.text_of(way),
          .buckets = buckets.size(),
          .fused_bytes = ways_.fused_bytes_of(way, buckets)};
}

void Tuner::end_trial(bool is_better) {
  known_.tried.insert(is_better ? known_.best : other_);
  const Choice tried = choice(other_, other_buckets_);
  news_.push_back({.tried = tried,
                   .best = is_better ? tried : choice(known_.best, best_buckets_),
                   .gain = trial_->pairs() > 0 ? std::optional(trial_->gain()) : std::nullopt,
                   .is_better = is_better,
                   .period = recent_.median(),
                   .bytes = ways_.step_bytes()});
  if (is_better) {
    known_.best = other_;
    best_buckets_ = other_buckets_;
    recent_.clear();
    exposed_.clear();
  }
  wanted_ = known_.best;
  trial_.reset();
}

std::vector<Bucket> Tuner::next() {
  running_ = wanted_;
  is_first_ = true;
  return running_ == known_.best ? best_buckets_ : other_buckets_;
}

void Tuner::plan_over() {
  // Plans that end so soon leave no time for this one.
  if (trial_ && ++interrupted_ >= kMostInterrupted) known_.tried.insert(other_);
  trial_.reset();
  running_ = wanted_ = known_.best;
  is_first_ = true;
  pass_began_ = 0;
  recent_.clear();
  exposed_.clear();
}

}  // namespace rueda::control
