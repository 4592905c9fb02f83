#include "rueda/control/tuner.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "rueda/control/numbered_name.h"

namespace rueda::control {
namespace {

constexpr size_t kMostPlanned = 1 << 14;          // tensors of a step that is tuned
constexpr int64_t kMostBytes = int64_t{1} << 40;  // of a tensor
constexpr size_t kMostTensors = 2048;             // of a step whose buckets are computed
constexpr double kLeastExposed = 0.01;  // of a pass; else communication is hidden, and buckets change nothing
constexpr double kDrift = 0.2;
constexpr int kPause = 5;            // times as long as a usual pass
constexpr int kMostInterrupted = 2;  // trials of one way
constexpr int kMostPauses = 3;       // in a row
constexpr size_t kMostKnown = 8;     // steps of one job
constexpr int kFar = 4;              // a look beyond the neighbours: sixteen times the size
constexpr int kMostSteps = 6;        // away from the size and the costs of a call at the beginning

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

std::string size_text(int64_t bytes) {
  return bytes >= 1 << 20 ? std::to_string(bytes >> 20) + " MiB" : std::to_string(bytes >> 10) + " KiB";
}

}  // namespace

void RecentTimes::push(Nanos time) {
  times_[pushed_++ % kMost] = time;
  if (pushed_ > kMost && pushed_ % kLookEvery != 0) return;
  std::array<Nanos, kMost> sorted = times_;
  const auto end = sorted.begin() + static_cast<std::ptrdiff_t>(std::min(pushed_, kMost));
  const auto middle = sorted.begin() + (end - sorted.begin()) / 2;
  std::nth_element(sorted.begin(), middle, end);
  median_ = *middle;
}

std::vector<Nanos> RecentTimes::all() const {
  return {times_.begin(), times_.begin() + static_cast<std::ptrdiff_t>(std::min(pushed_, kMost))};
}

std::vector<Bucket> Tuner::learned(std::vector<SeenTensor> step, const SetMembers& sets) {
  plan_over();
  step_ = std::move(step);
  sets_ = sets;
  ready_.clear();
  if (!options_.is_on) return in_buckets(step_, sets_, limits_);
  const std::vector<size_t> firsts = reach(step_);
  for (size_t i = 0; i < step_.size(); ++i)
    ready_.push_back({.ready = step_[i].ready - step_[0].ready, .bytes = step_[i].bytes, .first = firsts[i]});
  recall(calls_of(step_));
  running_ = wanted_ = best_;
  std::vector<Bucket> buckets = buckets_of(best_);
  is_allowed_ = is_tunable();
  return buckets;
}

// Ranks outside a process set may be many passes away when rank 0 stands between two, and numbers in names
// grow while a plan runs.
bool Tuner::is_tunable() const {
  return step_.size() <= kMostPlanned && std::ranges::all_of(step_, [this](const SeenTensor& tensor) {
           const Bucket& bucket = tensor.bucket;
           return bucket.process_set == 0 && tensor.entry().numbered_at == 0 && tensor.bytes <= kMostBytes &&
                  (options_.may_change_bits || limits_.traits_of(0, bucket).keeps_order);
         });
}

// A job that trains and evaluates by turns has two steps.
void Tuner::recall(std::vector<std::string> calls) {
  const auto of = [](const std::vector<std::string>& wanted) {
    return [&wanted](const Known& known) { return known.calls == wanted; };
  };
  std::erase_if(known_, of(calls_));
  if (!calls_.empty())
    known_.push_back(
        {.calls = std::move(calls_), .best = best_, .tried = std::move(tried_), .settled = settled_});
  if (known_.size() > kMostKnown) known_.pop_front();
  calls_ = std::move(calls);
  best_ = {};
  tried_.clear();
  settled_ = 0;
  const auto found = std::ranges::find_if(known_, of(calls_));
  if (found == known_.end()) return;
  best_ = found->best;
  tried_ = found->tried;
  settled_ = found->settled;
}

std::vector<Bucket> Tuner::buckets_of(const Way& way) const {
  BucketLimits limits = limits_;
  if (way.is_computed) {
    limits.bucket_bytes = options_.costs.most_bytes;
    limits.begins = best_buckets(ready_, costs_of(way)).begins;
  } else if (way.exponent != 0) {
    const auto scaled = [exponent = way.exponent](int64_t bytes) {
      return exponent > 0 ? bytes << exponent : bytes >> -exponent;
    };
    limits.bucket_bytes = std::min(scaled(limits.bucket_bytes), options_.costs.most_bytes);
    limits.traits_of = [scaled, most = options_.costs.most_bytes, traits_of = limits_.traits_of](
                           int32_t set, const Terms& terms) {
      BackendTraits traits = traits_of(set, terms);
      traits.bucket_bytes = std::min(scaled(traits.bucket_bytes), most);
      return traits;
    };
  }
  return in_buckets(step_, sets_, limits);
}

BucketCosts Tuner::costs_of(const Way& way) const {
  BucketCosts costs = options_.costs;
  const double more = (std::pow(4.0, way.exponent) - 1) * costs.call_us(4);
  costs.call_us = [more, call_us = options_.costs.call_us](int64_t bytes) { return call_us(bytes) + more; };
  return costs;
}

std::string Tuner::text_of(const Way& way) const {
  if (!way.is_computed) {
    const int64_t bytes = limits_.bucket_bytes;
    const int64_t scaled = way.exponent > 0 ? bytes << way.exponent : bytes >> -way.exponent;
    return "buckets up to " + size_text(std::min(scaled, options_.costs.most_bytes));
  }
  if (way.exponent == 0) return "computed buckets, a call as it is predicted";
  const std::string factor = std::to_string(1 << (2 * std::abs(way.exponent)));
  return "computed buckets, a call " + factor + (way.exponent > 0 ? " times as dear" : " times as cheap");
}

void Tuner::pass_begins(Nanos now) {
  if (!options_.is_on || !is_allowed_) return;
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
    if (running_ == best_) recent_.push(period);
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
  if (running_ != best_) lose(kPause * recent_.median());
  if (++pauses_ < kMostPauses) return true;
  pauses_ = 0;
  if (trial_) end_trial(false);
  recent_.clear();
  return true;
}

// A pass with buckets that are on trial has taken so long.
void Tuner::lose(Nanos period) { lost_ += std::max<Nanos>(period - recent_.median(), 0); }

void Tuner::watch() {
  if (wants_change() || running_ != best_) return;
  if (trained_ < options_.settle || !recent_.is_full() || !exposed_.is_full()) return;
  const auto hidden = static_cast<Nanos>(kLeastExposed * static_cast<double>(recent_.median()));
  if (exposed_.median() < hidden) return;
  if (settled_ != 0 && has_drifted()) {
    tried_.clear();
    settled_ = 0;
  }
  if (settled_ == 0) begin_trial();
}

bool Tuner::has_drifted() const {
  const auto now = static_cast<double>(recent_.median()), then = static_cast<double>(settled_);
  return now > (1 + kDrift) * then || now < (1 - kDrift) * then;
}

bool Tuner::is_within_budget(Nanos loss) const {
  return static_cast<double>(lost_ + loss) <= options_.budget * static_cast<double>(trained_);
}

std::optional<Tuner::Way> Tuner::candidate() const {
  const auto sizes_of = [&](const Way& way) {
    std::vector<size_t> sizes;
    for (const Bucket& bucket : buckets_of(way)) sizes.push_back(bucket.entries.size());
    return sizes;
  };
  std::vector<Way> ways;
  if (!best_.is_computed) ways.push_back({.is_computed = true});
  for (const int direction : {1, -1})
    ways.push_back({.is_computed = best_.is_computed, .exponent = best_.exponent + direction});
  if (best_ == Way{}) ways.push_back({.exponent = kFar});
  const std::vector<size_t> now = sizes_of(best_);
  for (const Way& way : ways) {
    if (tried_.contains(way) || std::abs(way.exponent) > kMostSteps) continue;
    if (way.is_computed && step_.size() > kMostTensors) continue;
    if (!way.is_computed && limits_.bucket_bytes >> std::max(0, -way.exponent) == 0) continue;
    if (sizes_of(way) != now) return way;
  }
  return std::nullopt;
}

// To find a candidate takes time, so it is not asked for before one can be tried.
void Tuner::begin_trial() {
  Trial begun(options_.trial, recent_.all());
  if (!is_within_budget(begun.next_loss() + 2 * change_cost_)) return;
  const std::optional<Way> way = candidate();
  if (!way) {
    settled_ = recent_.median();
    return;
  }
  if (*way != other_) interrupted_ = 0;
  trial_ = begun;
  wanted_ = other_ = *way;
}

void Tuner::follow_trial(Nanos period) {
  using State = Trial::State;
  if (wants_change()) {  // it was asked for and has not happened yet
    if (running_ != best_) lose(period);
    return;
  }
  const bool is_due = trial_->state() == State::kOther ? running_ == other_ : running_ == best_;
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
      wanted_ = best_;
      return;
    case State::kBetter:
      return end_trial(true);
    case State::kNotBetter:
      return end_trial(false);
  }
}

void Tuner::end_trial(bool is_better) {
  tried_.insert(is_better ? best_ : other_);
  news_.push_back({.what = text_of(other_),
                   .buckets = buckets_of(other_).size(),
                   .gain = trial_->gain(),
                   .is_better = is_better,
                   .period = recent_.median()});
  if (is_better) {
    best_ = other_;
    recent_.clear();
    exposed_.clear();
  }
  wanted_ = best_;
  trial_.reset();
}

std::vector<Bucket> Tuner::next() {
  running_ = wanted_;
  is_first_ = true;
  return buckets_of(running_);
}

void Tuner::plan_over() {
  // Plans that end so soon leave no time for this one.
  if (trial_ && ++interrupted_ >= kMostInterrupted) tried_.insert(other_);
  trial_.reset();
  running_ = wanted_ = best_;
  is_first_ = true;
  pass_began_ = 0;
  recent_.clear();
  exposed_.clear();
}

}  // namespace rueda::control
