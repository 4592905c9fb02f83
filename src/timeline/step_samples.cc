#include "timeline/step_samples.h"

#include <algorithm>
#include <map>

namespace rueda::timeline {
namespace {

constexpr size_t kFirst = 4;
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
Regular regular_among(const std::vector<int64_t>& steps) {
  if (steps.size() < 3) return {};
  std::map<int64_t, size_t> gaps;
  for (size_t i = 1; i < steps.size(); ++i) ++gaps[steps[i] - steps[i - 1]];
  const int64_t gap = std::ranges::max_element(gaps, {}, [](const auto& one) { return one.second; })->first;
  if (gap < 2) return {};
  std::map<int64_t, std::vector<int64_t>> by_phase;
  for (const int64_t step : steps) by_phase[step % gap].push_back(step);
  const std::vector<int64_t>& found =
      std::ranges::max_element(by_phase, {}, [](const auto& one) { return one.second.size(); })->second;
  const auto count = static_cast<double>(found.size());
  const auto places = static_cast<double>((found.back() - found.front()) / gap + 1);
  const bool are_most = found.size() > 2 && count >= kMostOfThem * static_cast<double>(steps.size());
  return are_most && count >= kMostOfThem * places ? Regular{gap, found} : Regular{};
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

LateSteps StepSamples::late_by(float StepSample::*what, double times_usual) const {
  LateSteps late;
  if (kept_.empty()) return late;
  std::vector<float> values;
  for (const StepSample& one : kept_) values.push_back(one.*what);
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  const float usual = *middle;
  const float longest = std::ranges::max_element(kept_, {}, &StepSample::wait)->wait;
  std::vector<int64_t> steps;
  for (const StepSample& one : kept_) {
    const float longer = one.*what - usual;
    if (one.wait <= 0 || one.wait < kAsLong * longest || one.*what < times_usual * usual) continue;
    if (longer < one.wait / 2) continue;
    steps.push_back(one.step);
    late.longer += longer;
    late.waited += std::min(longer, one.wait);
  }
  if (steps.empty()) return late;
  late.longer /= static_cast<double>(steps.size());
  late.waited *= static_cast<double>(one_of_);
  late.count = static_cast<int64_t>(steps.size() * one_of_);
  const Regular regular = one_of_ == 1 ? regular_among(steps) : Regular{};
  late.every = regular.distance;
  if (late.every > 0) steps = regular.steps;
  late.first.assign(steps.begin(),
                    steps.begin() + static_cast<std::ptrdiff_t>(std::min(kFirst, steps.size())));
  return late;
}

}  // namespace rueda::timeline
