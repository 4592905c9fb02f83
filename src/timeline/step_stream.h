// The records of one rank, step by step, in the memory of one step. One thread.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "rueda/base/status.h"
#include "timeline/division.h"
#include "timeline/job.h"
#include "timeline/records.h"

namespace rueda::timeline {

// What a rank recorded from one step's end to the next. The times of calls and spans are on the common clock.
struct RankStep {
  Nanos begin = 0, end = 0;
  std::vector<Call> calls;
  std::vector<std::pair<Nanos, Nanos>> waits, inputs;
  std::vector<Span> messages;  // in the order of their ends; those beyond a bound are left out
};

class StepStream {
 public:
  // file outlives the stream.
  static Result<StepStream> open(const RankFile& file, Epoch epoch, const Division& division, Names& names);

  // What came before the first step is skipped. Empty at the end, and where a step was not finished.
  std::optional<RankStep> next();

 private:
  StepStream(RecordReader reader, const RankFile& file, Epoch epoch, const Division& division);
  std::optional<RankStep> next_marked();
  std::optional<RankStep> next_window();
  void take(const Call& call, RankStep& step) const;
  void take(const Span& span, RankStep& step) const;

  RecordReader reader_;
  const RankFile* file_;
  Epoch epoch_;
  Division division_;
  bool is_mine_ = false;  // the records that come are of this epoch
  Nanos at_ = 0;          // where the next step begins; 0: not known yet
  RankStep ahead_;        // of the next window
};

}  // namespace rueda::timeline
