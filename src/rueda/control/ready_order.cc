#include "rueda/control/ready_order.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace rueda::control {

// A tensor counts as ready no earlier than what it may depend on. Sorting is stable, so that stays before it.
std::vector<SeenTensor> in_order_of_readiness(std::vector<SeenTensor> step) {
  std::vector<Nanos> latest;  // [tensors] of this one and all before it
  std::vector<std::pair<Nanos, size_t>> order;
  Nanos fence = std::numeric_limits<Nanos>::min();  // what is behind it counts as ready no earlier
  for (size_t i = 0; i < step.size(); ++i) {
    Nanos ready = std::max(fence, step[i].ready);
    // Answers are in order, so what was answered before this one was submitted comes first.
    const auto before = std::ranges::upper_bound(step.begin(), step.begin() + static_cast<std::ptrdiff_t>(i),
                                                 step[i].seen, {}, &SeenTensor::started);
    if (before != step.begin())
      ready = std::max(ready, latest[static_cast<size_t>(before - step.begin()) - 1]);
    if (step[i].bucket.what != Collective::kAllreduce)
      fence = ready = latest.empty() ? ready : std::max(ready, latest.back());
    latest.push_back(latest.empty() ? ready : std::max(latest.back(), ready));
    order.emplace_back(ready, i);
  }
  std::ranges::sort(order);  // by index where times are equal
  std::vector<SeenTensor> sorted;
  for (const auto& [ready, index] : order) sorted.push_back(std::move(step[index]));
  return sorted;
}

}  // namespace rueda::control
