#include "rueda/schedule/first_write.h"

#include <algorithm>
#include <vector>

namespace rueda::schedule {
namespace {

bool overwrites(const Step& step) {
  if (step.kind == StepKind::kSend || step.to.buffer != Buffer::kOutput || step.to.count == 0) return false;
  const bool is_in_place =
      step.kind == StepKind::kCopy && step.from.buffer == Buffer::kInput && step.from.begin == step.to.begin;
  return !is_in_place;
}

}  // namespace

bool hears_before_writing(const Schedule& schedule) {
  std::vector<bool> has_heard;
  has_heard.reserve(schedule.steps.size());
  for (const Step& step : schedule.steps) {
    const bool hears = is_receive(step) || std::ranges::any_of(step.after, [&](int32_t before) {
                         return has_heard[static_cast<size_t>(before)];
                       });
    if (overwrites(step) && !hears) return false;
    has_heard.push_back(hears);
  }
  return true;
}

}  // namespace rueda::schedule
