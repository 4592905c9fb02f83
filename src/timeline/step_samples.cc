#include "timeline/step_samples.h"

#include <algorithm>
#include <map>

namespace rueda::timeline {
namespace {

constexpr size_t kFirst = 4;
constexpr double kMostGaps = 0.8;  // of the distances: the steps are regular

uint64_t mixed(uint64_t value) {  // SplitMix64 (Steele, Lea, Flood 2014)
  value += 0x9E3779B97F4A7C15U;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9U;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBU;
  return value ^ (value >> 31);
}

// The distance that most of the steps have from the one before; 0: there is none.
int64_t usual_gap(const std::vector<int64_t>& steps) {
  if (steps.size() < 3) return 0;
  std::map<int64_t, size_t> gaps;
  for (size_t i = 1; i < steps.size(); ++i) ++gaps[steps[i] - steps[i - 1]];
  const auto most = std::ranges::max_element(gaps, {}, [](const auto& gap) { return gap.second; });
  const bool is_usual =
      static_cast<double>(most->second) >= kMostGaps * static_cast<double>(steps.size() - 1);
  return is_usual && most->first > 1 ? most->first : 0;
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
  if (one_of_ == 1) late.every = usual_gap(steps);
  late.first.assign(steps.begin(),
                    steps.begin() + static_cast<std::ptrdiff_t>(std::min(kFirst, steps.size())));
  return late;
}

}  // namespace rueda::timeline
