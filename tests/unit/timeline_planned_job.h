// Jobs that never ran, written with the recorder, with a known cause for each lost moment.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rueda/trace/recorder.h"
#include "timeline/summarize.h"

namespace rueda::timeline {

// What a rank does in a step, in milliseconds.
struct StepPlan {
  double input = 0, compute = 10, transfer = 5;
};

struct JobPlan {
  Rank ranks = 3;
  int64_t steps = 20;
  int32_t calls = 2;
  bool marks_steps = true;
  Nanos offset = 0;  // of the clocks of odd ranks, which are then on a host of their own
  int64_t job = 7;
  int64_t began_micros = 0;
  std::function<bool(int64_t step)> waits = [](int64_t) {
    return true;
  };  // whether the program says so there
  std::function<bool(int64_t step)> reduces = [](int64_t) { return true; };  // whether the step has calls
  std::function<StepPlan(Rank rank, int64_t step)> step = [](Rank, int64_t) { return StepPlan(); };
};

class SummaryTest : public testing::Test {
 protected:
  SummaryTest() {
    std::string pattern = testing::TempDir() + "rueda_summary_XXXXXX";
    dir_ = mkdtemp(pattern.data());
  }
  ~SummaryTest() override { std::filesystem::remove_all(dir_); }

  static Nanos ms(double value) { return static_cast<Nanos>(value * 1e6); }

  // Writes dir/name.rank<N>.rec and returns dir/name.
  std::string write(const JobPlan& plan, const std::string& name = "t.json") const {
    const std::string base = dir_ + "/" + name;
    std::vector<Nanos> at(static_cast<size_t>(plan.ranks), kSecond);
    std::vector<std::unique_ptr<trace::Recorder>> recorders;
    const auto skew = [&](Rank rank) { return rank % 2 == 1 ? plan.offset : 0; };
    for (Rank rank = 0; rank < plan.ranks; ++rank) {
      auto& recorder = *recorders.emplace_back(std::make_unique<trace::Recorder>());
      const bool is_apart = plan.offset != 0 && rank % 2 == 1;
      recorder.begin_epoch({.epoch = 1,
                            .rank = rank,
                            .size = plan.ranks,
                            .job = plan.job,
                            .began = kSecond + skew(rank),
                            .began_micros = plan.began_micros,
                            .host = is_apart ? "b" : "a",
                            .host_key = is_apart ? "b|2" : "a|1",
                            .command = "python train.py --lr <0.1>"});
      EXPECT_TRUE(recorder.start_file(trace::record_path(base, rank), false).is_ok());
      if (is_apart)
        recorder.record(TraceSpan{.kind = SpanKind::kClock,
                                  .begin = kSecond + plan.offset,
                                  .end = 20'000,
                                  .value = -plan.offset + 3'000});
      if (plan.marks_steps)
        recorder.record(
            TraceSpan{.kind = SpanKind::kStep, .begin = kSecond + skew(rank), .end = kSecond + skew(rank)});
    }
    for (int64_t step = 0; step < plan.steps; ++step) write_step(plan, step, at, recorders);
    return base;
  }

  static void write_step(const JobPlan& plan, int64_t step, std::vector<Nanos>& at,
                         std::vector<std::unique_ptr<trace::Recorder>>& recorders) {
    std::vector<Nanos> ready(at);
    for (size_t r = 0; r < at.size(); ++r) {
      const StepPlan mine = plan.step(static_cast<Rank>(r), step);
      ready[r] += ms(mine.input + mine.compute);
    }
    const Nanos last = *std::ranges::max_element(ready);
    for (size_t r = 0; r < at.size(); ++r) {
      const StepPlan mine = plan.step(static_cast<Rank>(r), step);
      const Nanos skew = r % 2 == 1 ? plan.offset : 0;
      trace::Recorder& out = *recorders[r];
      if (mine.input > 0)
        out.record(
            TraceSpan{.kind = SpanKind::kInput, .begin = at[r] + skew, .end = at[r] + ms(mine.input) + skew});
      Nanos now = ready[r];
      for (int32_t c = 0; plan.reduces(step) && c < plan.calls; ++c) {
        const Nanos end = std::max(now, last) + ms(mine.transfer / plan.calls);
        const std::string name = "grad" + std::to_string(c);
        out.record(CallTrace{.is_planned = true,
                             .order = static_cast<uint64_t>(step * plan.calls + c),
                             .name = name,
                             .backend = "local",
                             .tensors = 1,
                             .bytes = 1 << 20,
                             .submitted = ready[r] + skew,
                             .ordered = now + skew,
                             .started = now + skew,
                             .transfer_began = now + skew,
                             .ended = end + skew});
        now = end;
      }
      if (plan.waits(step))
        out.record(TraceSpan{.kind = SpanKind::kWait, .begin = ready[r] + skew, .end = now + skew});
      if (plan.marks_steps)
        out.record(TraceSpan{.kind = SpanKind::kStep, .begin = now + skew, .end = now + skew});
      at[r] = now;
    }
  }

  static Result<Summary> summarize_files(const std::vector<std::string>& arguments, int64_t epoch = -1) {
    Names names;
    const auto paths = find_files(arguments);
    if (!paths.is_ok()) return paths.status();
    const auto job = read_job(paths.value(), epoch, names);
    if (!job.is_ok()) return job.status();
    return summarize(job.value(), names);
  }
  static double share(const Shares& shares, StepShare which) {
    return shares[static_cast<size_t>(which)] / 1e6;
  }

  std::string dir_;
};

}  // namespace rueda::timeline
