#include "simulate/job.h"

#include <algorithm>
#include <utility>

#include "rueda/base/check.h"

namespace rueda::simulate {
namespace {

constexpr Nanos kTick = 100 * kMillisecond, kHang = 1000 * kSecond;

Nanos scaled(Nanos time, double factor) { return static_cast<Nanos>(static_cast<double>(time) * factor); }

// Where steps cross, tensors travel in parts, so that more urgent ones overtake: as the front ends and the
// bench cut them.
constexpr int64_t kPartElements = 1 << 18;

std::vector<Summed> tensors_of(const Program& program) {
  std::vector<Summed> tensors;
  const auto count = static_cast<int32_t>(program.gradients.size());
  for (int32_t i = 0; i < count; ++i) {
    const int64_t elements = program.gradients[i].count;
    const int64_t part = program.cross_step ? kPartElements : elements, first = std::ssize(tensors);
    const auto parts =
        static_cast<size_t>(std::max<int64_t>(1, (elements + part - 1) / std::max<int64_t>(part, 1)));
    for (size_t k = 0; k < parts; ++k)
      tensors.push_back({.count = std::min(part, elements - static_cast<int64_t>(k) * part),
                         .priority = program.cross_step ? i - count : 0,
                         .group = static_cast<size_t>(first),
                         .members = parts});
  }
  return tensors;
}

class Job {
 public:
  Job(const Program& program, const JobOptions& options, Calls& calls)
      : program_(program),
        options_(options),
        calls_(calls),
        tensors_(tensors_of(program)),
        engines_(options.engine, tensors_, agenda_, calls,
                 [this](Rank rank, size_t tensor) { complete(rank, gradient_of_[tensor]); }),
        loops_(static_cast<size_t>(options.engine.ranks)) {
    result_.steps.resize(loops_.size());
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (tensors_[i].group == i) first_of_.push_back(i);
      gradient_of_.push_back(first_of_.size() - 1);
    }
    for (Loop& loop : loops_) loop.lacks.assign(program.gradients.size(), 0);
  }

  Result<JobResult> run() {
    for (Rank rank = 0; rank < options_.engine.ranks; ++rank) begin_step(rank);
    const std::function<void()> tick = [this, &tick] {
      is_tick_ = true;
      engines_.tick();
      agenda_.at(agenda_.now() + kTick, tick);
    };
    agenda_.at(kTick, tick);
    for (Nanos moved = 0; finished_ < options_.engine.ranks;) {
      is_tick_ = false;
      if (calls_.next() <= agenda_.next())
        engines_.run_next_calls();
      else
        agenda_.run_next();
      if (!is_tick_) moved = agenda_.now();
      if (agenda_.now() - moved > kHang)
        return Status(Code::kInternal,
                      "the simulated job hangs; please report this, with the command and its files");
    }
    result_.use = calls_.use();
    result_.plans_begun = engines_.plans_begun();
    result_.tuned = engines_.take_tuner_news();
    return std::move(result_);
  }

 private:
  struct Loop {
    std::vector<size_t> lacks;  // [gradient] parts of its last sum that are not there
    size_t open = 0;            // gradients without a sum
    int step = 0;
    size_t next = 0;          // the gradient that comes next, in the forward or the backward pass
    Nanos origin = 0;         // from when `ready` counts
    bool is_waiting = false;  // for its gradients, or for the one of the forward pass
  };

  [[nodiscard]] double slower(Rank rank) const { return options_.slower[rank][loops_[rank].step]; }

  void begin_step(Rank rank) {
    result_.steps[rank].push_back({.began = agenda_.now()});
    if (!program_.cross_step) return begin_backward(rank, agenda_.now());
    loops_[rank].next = program_.gradients.size();
    go_forward(rank);
  }

  // The forward pass needs the gradients in the reverse order.
  void go_forward(Rank rank) {
    Loop& loop = loops_[rank];
    while (loop.next > 0) {
      if (loop.lacks[loop.next - 1] > 0) {
        loop.is_waiting = true;
        return engines_.wait(rank, false);
      }
      const Nanos takes = program_.gradients[--loop.next].forward;
      if (takes > 0)
        return agenda_.at(agenda_.now() + scaled(takes, slower(rank)), [this, rank] { go_forward(rank); });
    }
    begin_backward(rank, agenda_.now() - scaled(program_.forward(), slower(rank)));
  }

  void begin_backward(Rank rank, Nanos origin) {
    loops_[rank].origin = origin;
    loops_[rank].next = 0;
    submit_next(rank);
  }

  // The training thread computes until the gradient is ready, and takes some time for each of them.
  void submit_next(Rank rank) {
    const Loop& loop = loops_[rank];
    const bool is_last = loop.next == program_.gradients.size();
    const Nanos ready = is_last ? program_.compute : program_.gradients[loop.next].ready;
    const Nanos lag = options_.submit * static_cast<Nanos>(loop.next);
    agenda_.at(loop.origin + scaled(ready, slower(rank)) + lag, [this, rank, is_last] {
      if (is_last) return finish_computing(rank);
      submit(rank, loops_[rank].next++);
      submit_next(rank);
    });
  }

  void submit(Rank rank, size_t gradient) {
    Loop& loop = loops_[rank];
    RUEDA_CHECK(loop.lacks[gradient] == 0, "a gradient is in flight once");
    if (options_.engine.ranks == 1) return;
    loop.lacks[gradient] = tensors_[first_of_[gradient]].members;
    ++loop.open;
    engines_.submit(rank, first_of_[gradient]);
  }

  void finish_computing(Rank rank) {
    Loop& loop = loops_[rank];
    result_.steps[rank].back().computed = agenda_.now();
    if (program_.cross_step || loop.open == 0) return end_step(rank);
    loop.is_waiting = true;
    engines_.wait(rank, true);
  }

  void complete(Rank rank, size_t gradient) {
    Loop& loop = loops_[rank];
    if (--loop.lacks[gradient] > 0) return;
    --loop.open;
    if (!loop.is_waiting) return;
    if (program_.cross_step ? gradient + 1 != loop.next : loop.open > 0) return;
    loop.is_waiting = false;
    agenda_.at(agenda_.now() + options_.wake,
               [this, rank] { program_.cross_step ? go_forward(rank) : end_step(rank); });
  }

  void end_step(Rank rank) {
    result_.steps[rank].back().ended = agenda_.now();
    if (rank == 0) {
      result_.calls.push_back(engines_.calls_begun());
      result_.messages.push_back(engines_.messages());
      result_.last_calls = engines_.take_started();
    }
    if (++loops_[rank].step == options_.steps)
      ++finished_;
    else
      begin_step(rank);
  }

  const Program& program_;
  const JobOptions& options_;
  Calls& calls_;
  Agenda agenda_;
  std::vector<Summed> tensors_;
  std::vector<size_t> first_of_, gradient_of_;  // [gradient], [tensor]
  Engines engines_;
  std::vector<Loop> loops_;  // [rank]
  Rank finished_ = 0;
  bool is_tick_ = false;
  JobResult result_;
};

}  // namespace

Result<JobResult> run_job(const Program& program, const JobOptions& options, Calls& calls) {
  return Job(program, options, calls).run();
}

}  // namespace rueda::simulate
