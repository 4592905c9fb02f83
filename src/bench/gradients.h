// The gradients of a model in memory, and the ways to sum them over the ranks.
#pragma once

#include <memory>

#include "bench/placement.h"
#include "bench/rank.h"
#include "workload/models.h"

namespace rueda::bench {

class Gradients {
 public:
  static Result<Gradients> make(const Rank& rank, const workload::Model& model, std::string_view memory);
  [[nodiscard]] size_t size() const { return tensors_.size(); }
  [[nodiscard]] std::span<float> tensor(size_t index) const;
  [[nodiscard]] int64_t bytes() const { return bytes_; }
  [[nodiscard]] int64_t first(size_t index) const { return tensors_[index].first; }
  void prepare(int rank, int64_t iteration) const;
  // rounding: the share of the largest sum by which others may be wrong.
  [[nodiscard]] bool hold_sum(int ranks, int64_t iteration, double rounding = 0) const;

 private:
  struct TensorRange {
    int64_t first = 0, count = 0;
  };
  Gradients(Buffer buffer, std::vector<TensorRange> tensors)
      : buffer_(std::move(buffer)), tensors_(std::move(tensors)) {}
  Buffer buffer_;
  std::vector<TensorRange> tensors_;  // each begins on a new cache line
  int64_t bytes_ = 0;
};

// Sums gradients in place. begin() each tensor in order, then finish(). One thread.
class GradientExchange {
 public:
  virtual ~GradientExchange() = default;
  // label becomes part of the names. If it is the same again, the engine can use its learned plan.
  virtual Status begin(size_t index, int64_t label) = 0;
  virtual Status finish() = 0;
};
std::unique_ptr<GradientExchange> make_allreduces(Rank& rank, const Gradients& gradients, rueda_wire wire);

// Parameter servers: what travels, and how much of it at once.
struct ServerPlan {
  std::vector<Transfer> transfers = {};
  int servers = 1;  // at most as many as ranks, and spread over them
  // Elements of all transfers under way, if there are several: an answer shall not wait behind all pushes,
  // and each takes memory for all ranks.
  [[nodiscard]] int64_t most_under_way() const { return 3 * kMostOfServer * servers; }
  [[nodiscard]] int rank_of(int server, int ranks) const {
    return static_cast<int>(int64_t{server} * ranks / servers);
  }
};
std::unique_ptr<GradientExchange> make_parameter_server(Rank& rank, const Gradients& gradients,
                                                        ServerPlan plan);

// Sums gradients while the forward pass of the next step runs. It works out of place, so that the values need
// no refilling, and in parts, first those that the forward pass needs first. One thread.
class CrossStep {
 public:
  static Result<CrossStep> make(Rank& rank, const workload::Model& model, std::string_view memory);
  [[nodiscard]] size_t size() const { return sums_.size(); }
  Status begin(size_t index, int64_t step);
  // Waits for the last begin() of the tensor, if there was one. Returns false if its first or last
  // element is wrong.
  Result<bool> finish(size_t index);
  // Call it after finish() of all tensors. Returns whether every element of every tensor is the sum
  // of that step.
  [[nodiscard]] bool hold_sum(int64_t step) const;

 private:
  CrossStep(Rank& rank, Gradients sums, Buffer values)
      : rank_(&rank), sums_(std::move(sums)), values_(std::move(values)), flights_(sums_.size()) {}
  struct Flight {
    int64_t handle = 0;  // 0: none
    int64_t step = 0;
  };
  Rank* rank_;
  Gradients sums_;
  Buffer values_;
  std::vector<Flight> flights_;
};

}  // namespace rueda::bench
