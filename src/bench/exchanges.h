// What a model exchanges besides the sums of gradients, in memory of its own. One thread.
#pragma once

#include <vector>

#include "bench/rank.h"
#include "workload/models.h"

namespace rueda::bench {

class Exchanges {
 public:
  static Result<Exchanges> make(Rank& rank, const workload::Model& model, std::string_view memory);
  Status begin(size_t index);
  // Waits for it. Returns false if the first or the last element of the result is wrong.
  Result<bool> finish(size_t index);
  // The same for all that have begun and are not finished.
  Result<bool> finish_all();

 private:
  struct One {
    const workload::Exchange* what;  // of the model
    std::string name;
    std::vector<int32_t> splits;  // alltoall
    Buffer input, output;
    int64_t handle = 0;  // 0: none is in flight
  };
  explicit Exchanges(Rank& rank) : rank_(&rank) {}
  [[nodiscard]] bool is_right(const One& one) const;

  Rank* rank_;
  std::vector<One> all_;
};

}  // namespace rueda::bench
