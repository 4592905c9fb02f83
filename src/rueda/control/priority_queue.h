// Ready tensors that have a priority, the most urgent first. One bucket leaves at a time, so that a more
// urgent tensor that becomes ready later overtakes the rest. As in P3 (Jayarajan et al., "Priority-based
// parameter propagation for distributed DNN training", 2019) and ByteScheduler (Peng et al., 2019). Pure.
// Only the coordinator has one, so all ranks follow the same order.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "rueda/control/tensor.h"

namespace rueda::control {

class PriorityQueue {
 public:
  [[nodiscard]] bool is_empty() const { return waiting_.empty(); }
  // The priority of the most urgent tensor; 0 if there is none.
  [[nodiscard]] int32_t highest() const { return waiting_.empty() ? 0 : -waiting_.begin()->first.first; }
  void add(Candidate candidate);
  // Takes the most urgent tensor, and the next ones that may share its transfer as long as all together have
  // at most bucket_bytes. Tensors of equal priority leave in the order in which they came.
  Bucket take(int64_t bucket_bytes);

 private:
  using SortKey = std::pair<int32_t, uint64_t>;  // minus priority, arrival
  std::map<SortKey, Candidate> waiting_;
  uint64_t arrivals_ = 0;
};

}  // namespace rueda::control
