// Tensors that are ready, in the order in which they became ready, and what leaves next: fused, and the most
// urgent tensors first. Pure. Part of the coordinator.
#pragma once

#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include "rueda/control/fusion.h"
#include "rueda/control/priority_queue.h"
#include "rueda/control/tensor.h"

namespace rueda::control {

class Ready {
 public:
  // priority_bytes: the largest bucket of tensors that have a priority.
  Ready(FusionOptions fusion, int64_t priority_bytes)
      : fusion_(std::move(fusion)), priority_bytes_(priority_bytes) {}

  [[nodiscard]] bool is_empty() const { return arrived_.empty() && prioritized_.is_empty(); }
  void add(Unit unit) { arrived_.emplace_back(std::move(unit)); }
  // A response that runs nothing. Tensors are not fused across it.
  void add(Response response) { arrived_.emplace_back(std::move(response)); }
  // Takes one bucket of the tensors with a priority, and all tensors without one.
  std::vector<Response> take();

 private:
  FusionOptions fusion_;
  int64_t priority_bytes_;
  std::vector<std::variant<Unit, Response>> arrived_;  // since the last take()
  PriorityQueue prioritized_;                          // what has a priority
};

}  // namespace rueda::control
