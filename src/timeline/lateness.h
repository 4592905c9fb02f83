// Why the others wait for a rank: it does something for longer than most, or at times, or by chance. And when
// nobody waits, because all do something longer at once. Pure.
#pragma once

#include <vector>

#include "timeline/late_calls.h"
#include "timeline/step_samples.h"
#include "timeline/step_sums.h"
#include "timeline/summary.h"
#include "timeline/typical.h"

namespace rueda::timeline {

inline constexpr size_t kKeptWaits = 32;  // of RankSummary::worst

// What one rank did in all steps.
struct RankEvidence {
  Typical compute, input, transfer;
  StepSums waits;    // of the average other rank for it
  StepSums decided;  // in which steps it waited least
  StepSamples samples;
};

// Fills in why, delay, at_times, late_in and worst of all ranks, by their order. calls: of a program that
// marks no steps. step: the median length of a step.
void judge_lateness(Summary& summary, const std::vector<RankEvidence>& evidence, const LateCalls& calls,
                    double step);

// Fills in all_longer, by the shares of the summary. together: of each step how long the ranks computed that
// computed least.
void judge_together(Summary& summary, const StepSamples& together);

// For how long the average rank waits in a step for ranks that are late for no reason that is known.
double waited_in_turn(const Summary& summary);
// Ranks for which others wait too little to speak of, or far less than for others in turn, are not late.
void forgive_jitter(Summary& summary);

}  // namespace rueda::timeline
