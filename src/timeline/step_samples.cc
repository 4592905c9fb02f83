#include "timeline/step_samples.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <utility>

namespace rueda::timeline {
namespace {

constexpr size_t kFirst = 4, kOneKind = 3;
constexpr double kAboutAsLong = 0.4;  // as the third longest: what all do together shows among noise
constexpr int64_t kLongestDistance = 1'000;
constexpr double kMostOfThem = 0.8;  // of the steps lie at one distance, and of what lies there are steps

uint64_t mixed(uint64_t value) {  // SplitMix64 (Steele, Lea, Flood 2014)
  value += 0x9E3779B97F4A7C15U;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9U;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBU;
  return value ^ (value >> 31);
}

// The steps that lie at one distance from one another, if these are most of them; else none. A few others by
// chance disturb nothing.
struct Regular {
  int64_t distance = 0;  // 0: there are none
  std::vector<int64_t> steps;
};

// The most common gap between those that follow one another; 0: there is none.
int64_t usual_gap(const std::vector<int64_t>& steps) {
  std::map<int64_t, size_t> gaps;
  for (size_t i = 1; i < steps.size(); ++i) ++gaps[steps[i] - steps[i - 1]];
  return gaps.empty() ? 0
                      : std::ranges::max_element(gaps, {}, [](const auto& one) { return one.second; })->first;
}

// Those of the steps that share a remainder; the largest such part.
std::vector<int64_t> at_distance(const std::vector<int64_t>& steps, int64_t distance) {
  std::vector<size_t> counts(static_cast<size_t>(distance));
  for (const int64_t step : steps) ++counts[static_cast<size_t>(step % distance)];
  const auto phase = std::ranges::max_element(counts) - counts.begin();
  std::vector<int64_t> found;
  std::ranges::copy_if(steps, std::back_inserter(found),
                       [&](int64_t step) { return step % distance == phase; });
  return found;
}

// kept: all steps that are known, so that one of them which is not among the late ones counts against it.
Regular regular_at(int64_t distance, const std::vector<int64_t>& late, const std::vector<StepSample>& kept) {
  std::vector<int64_t> found = at_distance(late, distance);
  const auto count = static_cast<double>(found.size());
  if (found.size() < 3 || count < kMostOfThem * static_cast<double>(late.size())) return {};
  const auto places = std::ranges::count_if(kept, [&](const StepSample& one) {
    return one.step >= found.front() && one.step <= found.back() &&
           (one.step - found.front()) % distance == 0;
  });
  if (count < kMostOfThem * static_cast<double>(places)) return {};
  return {distance, std::move(found)};
}

Regular regular_among(const std::vector<int64_t>& late, const std::vector<StepSample>& kept, bool are_all) {
  if (late.size() < 3) return {};
  if (are_all) {
    const int64_t gap = usual_gap(late);
    return gap < 2 ? Regular{} : regular_at(gap, late, kept);
  }
  // Gaps say nothing where steps are missing. A multiple of the distance has too few of the late steps, and a
  // divisor too many others.
  for (int64_t distance = kLongestDistance; distance >= 2; --distance) {
    Regular regular = regular_at(distance, late, kept);
    if (regular.distance == 0) continue;
    int64_t& first = regular.steps.front();
    const int64_t phase = first % distance;
    if (std::ranges::none_of(
            kept, [&](const StepSample& one) { return one.step < first && one.step % distance == phase; }))
      first = phase;  // nothing speaks against it
    return regular;
  }
  return {};
}

}  // namespace

bool StepSamples::is_kept(int64_t step) const {
  return (mixed(static_cast<uint64_t>(step)) & (one_of_ - 1)) == 0;
}

void StepSamples::add(const StepSample& sample) {
  if (!is_kept(sample.step)) return;
  kept_.push_back(sample);
  while (kept_.size() > kMost) {
    one_of_ *= 2;
    std::erase_if(kept_, [this](const StepSample& one) { return !is_kept(one.step); });
  }
}

float StepSamples::median_of(float StepSample::*what) const {
  std::vector<float> values;
  for (const StepSample& one : kept_) values.push_back(one.*what);
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

// steps: at least one, those that are kept.
LateSteps StepSamples::found(std::vector<int64_t> steps, double longer_in_all) const {
  LateSteps late;
  late.longer = longer_in_all / static_cast<double>(steps.size());
  late.count = static_cast<int64_t>(steps.size() * one_of_);
  const Regular regular = regular_among(steps, kept_, one_of_ == 1);
  late.every = regular.distance;
  if (late.every > 0) steps = regular.steps;
  late.first.assign(steps.begin(),
                    steps.begin() + static_cast<std::ptrdiff_t>(std::min(kFirst, steps.size())));
  return late;
}

LateSteps StepSamples::late_by(float StepSample::*what, double times_usual) const {
  if (kept_.empty()) return {};
  const float usual = median_of(what);
  const float longest = std::ranges::max_element(kept_, {}, &StepSample::wait)->wait;
  std::vector<int64_t> steps;
  double longer_in_all = 0, waited = 0;
  for (const StepSample& one : kept_) {
    const float longer = one.*what - usual;
    if (one.wait <= 0 || one.wait < kAsLong * longest || one.*what < times_usual * usual) continue;
    if (longer < one.wait / 2) continue;
    steps.push_back(one.step);
    longer_in_all += longer;
    waited += std::min(longer, one.wait);
  }
  if (steps.empty()) return {};
  LateSteps late = found(std::move(steps), longer_in_all);
  late.waited = waited * static_cast<double>(one_of_);
  return late;
}

LateSteps StepSamples::far_longer(float StepSample::*what, double times_usual) const {
  if (kept_.size() < kOneKind) return {};
  const float usual = median_of(what);
  std::vector<float> values;
  for (const StepSample& one : kept_) values.push_back(one.*what - usual);
  const auto third = values.begin() + (kOneKind - 1);
  std::ranges::nth_element(values, third, std::greater<>());
  const double reached = *third;
  for (const double least : {kAboutAsLong, kAsLong}) {
    std::vector<int64_t> steps;
    double longer_in_all = 0;
    for (const StepSample& one : kept_) {
      const double longer = one.*what - usual;
      if (one.*what < times_usual * usual || longer <= 0) continue;
      if (longer < least * reached || longer > reached / least) continue;
      steps.push_back(one.step);
      longer_in_all += longer;
    }
    if (steps.size() < kOneKind) continue;
    LateSteps late = found(std::move(steps), longer_in_all);
    if (late.every > 0 || least == kAsLong) return late;
  }
  return {};
}

}  // namespace rueda::timeline
