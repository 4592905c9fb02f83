#include "rueda/control/trial.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace rueda::control {
namespace {

constexpr int kPairs = 5, kMostPairs = 8;
constexpr size_t kQuickLook = 3;    // passes
constexpr double kFirstLoss = 0.1;  // of a way of which nothing is known yet

Nanos block_time(const Trial::Options& options, Nanos period) {
  return std::max(options.passes * period, options.time);
}

}  // namespace

Nanos median_of(std::span<Nanos> times) {
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::ranges::nth_element(times, middle);
  return *middle;
}

Trial::Trial(Options options, std::vector<Nanos> before) : options_(options), before_(median_of(before)) {}

bool Trial::is_full() const {
  const Nanos time = std::accumulate(block_.begin(), block_.end(), Nanos{0});
  return std::cmp_greater_equal(block_.size(), options_.passes) && time >= options_.time;
}

void Trial::passed(Nanos period) {
  block_.push_back(period);
  if (state_ == State::kOther) {
    loss_ += std::max<Nanos>(period - before_, 0);
    const auto limit = static_cast<Nanos>((1 + options_.cut) * static_cast<double>(before_));
    const Nanos now = median_of(block_);
    if (block_.size() >= kQuickLook && now > limit) {
      gains_.push_back(1 - static_cast<double>(now) / static_cast<double>(before_));
      state_ = State::kNotBetter;
    } else if (is_full()) {
      other_ = end_block();
      state_ = State::kAsIs;
    }
  } else if (state_ == State::kAsIs && is_full()) {
    end_pair();
  }
}

// Its median.
Nanos Trial::end_block() {
  const Nanos median = median_of(block_);
  block_.clear();
  return median;
}

void Trial::end_pair() {
  const Nanos after = end_block();
  gains_.push_back(1 - 2 * static_cast<double>(other_) / static_cast<double>(before_ + after));
  before_ = after;
  const auto losses = std::ranges::count_if(gains_, [](double gain) { return gain <= 0; });
  const bool is_enough = pairs() >= kMostPairs || (pairs() >= kPairs && losses == 0);
  if (losses >= 2 || (is_enough && gain() < options_.least_gain))
    state_ = State::kNotBetter;
  else
    state_ = is_enough ? State::kBetter : State::kOther;
}

double Trial::gain() const {
  if (gains_.empty()) return 0;
  std::vector<double> sorted = gains_;
  std::ranges::sort(sorted);
  const size_t middle = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

Nanos Trial::next_loss() const {
  if (gains_.empty()) return first_loss(options_, before_);
  const double share = std::max(0.0, -*std::ranges::min_element(gains_));
  return static_cast<Nanos>(share * static_cast<double>(block_time(options_, before_)));
}

Nanos Trial::first_loss(const Options& options, Nanos period) {
  return static_cast<Nanos>(kFirstLoss * static_cast<double>(block_time(options, period)));
}

}  // namespace rueda::control
