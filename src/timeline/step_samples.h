// What a rank did in single steps, and for how long the others waited for it there. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace rueda::timeline {

inline constexpr double kAsLong = 0.1;  // of the longest wait: it is of the same kind

struct StepSample {
  int64_t step = 0;
  float wait = 0;                // nanoseconds, of the average other rank for this one
  float input = 0, compute = 0;  // nanoseconds of this rank
};

// Steps in which a rank was late because something took it far longer than usual there.
struct LateSteps {
  int64_t count = 0;
  double waited = 0;           // nanoseconds of waiting in all of them that this explains
  double longer = 0;           // nanoseconds that it took longer in one of them, on average
  int64_t every = 0;           // most of them are so many steps apart; 0: they are not regular, or not known
  std::vector<int64_t> first;  // a few; the first of those that are regular
  int64_t of = 0;              // among so many
  bool are_calls = false;      // and not steps: the program marks none
};

// Memory is bounded: of more than kMost steps a part is kept that no period of the job can hide from.
class StepSamples {
 public:
  static constexpr size_t kMost = 2'048;

  void add(const StepSample& sample);
  // Steps in which `what` was at least so many times its median and explains half of the wait or more. Waits
  // far shorter than the longest are left out.
  [[nodiscard]] LateSteps late_by(float StepSample::*what, double times_usual) const;
  // Steps in which `what` was at least so many times its median, whoever waited, if there are three of one
  // kind: of about the same length. What happens once or twice is none of them, however long it takes.
  [[nodiscard]] LateSteps far_longer(float StepSample::*what, double times_usual) const;

 private:
  [[nodiscard]] bool is_kept(int64_t step) const;
  [[nodiscard]] float median_of(float StepSample::*what) const;  // there is at least one
  [[nodiscard]] LateSteps found(std::vector<int64_t> steps, double longer_in_all) const;

  std::vector<StepSample> kept_;
  uint64_t one_of_ = 1;  // a power of two
};

}  // namespace rueda::timeline
