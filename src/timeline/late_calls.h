// For whom ranks waited at each call, and what each did before it, where a program marks no steps: a window
// of time holds many calls, so it does not show that a rank is late at times only. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "timeline/step_samples.h"
#include "timeline/step_stream.h"

namespace rueda::timeline {

class LateCalls {
 public:
  explicit LateCalls(size_t ranks) : ranks_(ranks) {}

  // The next window of each rank, by the order of the ranks.
  void add(const std::vector<RankStep>& windows);
  // Those that all ranks made.
  [[nodiscard]] int64_t count() const { return count_; }
  // The calls that held the others up because of what a rank did before them; "step" is the number of the
  // call.
  [[nodiscard]] const StepSamples& samples_of(size_t rank) const { return ranks_[rank].samples; }
  // Whether the others waited for a rank at few of the calls before which ranks do something. Of a program
  // that computes and then makes many calls at once, a rank that always computes longer is late to few calls
  // as well, but to all of those.
  [[nodiscard]] bool is_late_to_few(size_t rank) const;

 private:
  // About how many of some values are not far smaller than the largest: the square of their sum over the sum
  // of their squares, which is n for n equal values. Of 9, 9, 1 and 1 it is 2.4.
  struct Spread {
    double sum = 0, squares = 0;
    void add(double value) {
      sum += value;
      squares += value * value;
    }
    [[nodiscard]] double count() const { return squares > 0 ? sum * sum / squares : 0; }
  };
  struct OneRank {
    Nanos before = 0;  // when it was done with the call before
    StepSamples samples{};
    Spread waited{};  // by the others
  };
  // What a rank did before a call, in nanoseconds.
  struct Arrival {
    size_t rank = 0;
    Nanos submitted = 0, input = 0, compute = 0;
  };
  struct Open {
    std::vector<Arrival> arrivals;
    int64_t window = 0;
  };

  void add_window(size_t rank, const RankStep& window);
  void judge(const std::vector<Arrival>& arrivals);

  std::vector<OneRank> ranks_;
  std::unordered_map<uint64_t, Open> open_;  // calls that some ranks have not made yet
  Spread usual_;                             // what the middle rank did before each call
  int64_t count_ = 0, window_ = 0;
};

}  // namespace rueda::timeline
