// Whether a step is shorter another way: blocks of passes, by turns as it is (A) and the other way (B), each
// B between two As, so that a job whose speed drifts deceives nobody. Pure; time comes in.
//
// It ends after 5 pairs if all say the same, and after 8 if 7 do (a sign test: by chance some 5 % of ways
// that change nothing would pass); so the median gain must be worth a change as well. Two pairs that say no
// end it at once, and so does a B that is clearly longer after three passes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "rueda/base/clock.h"

namespace rueda::control {

Nanos median_of(std::span<Nanos> times);  // of at least one; changes their order

class Trial {
 public:
  struct Options {
    int passes = 10;                  // of a block at least
    Nanos time = 200 * kMillisecond;  // of a block at least: short passes vary
    double least_gain = 0.01;         // worth a change
    double cut = 0.1;                 // so much longer ends a trial
  };
  enum class State : uint8_t { kAsIs, kOther, kBetter, kNotBetter };

  // before: periods of passes as it is, the last ones before the trial; as many as a block has.
  Trial(Options options, std::vector<Nanos> before);

  // Which way passes are to run now, or how the trial has ended.
  [[nodiscard]] State state() const { return state_; }
  // kOther was put off; these are the last passes as it is.
  void put_off(std::vector<Nanos> before) { before_ = median_of(before); }
  // A pass has run the way that state() said, and took so long. Not to be told: the one in which that
  // changed.
  void passed(Nanos period);

  [[nodiscard]] double gain() const;  // the median of the pairs; 0 before the first
  [[nodiscard]] int pairs() const { return static_cast<int>(gains_.size()); }
  // What the next block the other way may cost beyond one as it is, and what all of them have cost.
  [[nodiscard]] Nanos next_loss() const;
  // The same of the first block, where a pass as it is takes so long.
  [[nodiscard]] static Nanos first_loss(const Options& options, Nanos period);
  [[nodiscard]] Nanos loss() const { return loss_; }

 private:
  [[nodiscard]] bool is_full() const;
  void end_pair();
  Nanos end_block();

  Options options_;
  State state_ = State::kOther;
  std::vector<Nanos> block_;  // periods of this one
  Nanos before_ = 0;          // the median as it is, before B
  Nanos other_ = 0;           // the median of B
  std::vector<double> gains_;
  Nanos loss_ = 0;
};

}  // namespace rueda::control
