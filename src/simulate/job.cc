#include "simulate/job.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "rueda/base/check.h"

namespace rueda::simulate {
namespace {

constexpr Nanos kTick = 100 * kMillisecond, kHang = 100'000 * kSecond;  // longer than any step

Nanos scaled(Nanos time, double factor) { return static_cast<Nanos>(static_cast<double>(time) * factor); }

// Where steps cross, tensors travel in parts, so that more urgent ones overtake: as the front ends and the
// bench cut them.
constexpr int64_t kPartElements = 1 << 18;

// Those of the gradients, and then the exchanges.
std::vector<Exchanged> tensors_of(const Program& program) {
  std::vector<Exchanged> tensors;
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
  for (const Exchange& one : program.exchanges)
    tensors.push_back({.what = one.what, .count = one.count, .group = tensors.size()});
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
                 [this](Rank rank, size_t tensor) { complete(rank, piece_of_[tensor]); }),
        loops_(static_cast<size_t>(options.engine.ranks)) {
    result_.steps.resize(loops_.size());
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (tensors_[i].group == i) first_of_.push_back(i);
      piece_of_.push_back(first_of_.size() - 1);
    }
    for (Loop& loop : loops_) loop.lacks.assign(first_of_.size(), 0);
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
      if (const Status& refusal = engines_.refusal(); !refusal.is_ok())
        return Status(refusal.code, "the library would refuse this job: " + refusal.why);
      if (!is_tick_ || calls_.next() != kNever) moved = agenda_.now();
      if (agenda_.now() - moved > kHang)
        return Status(Code::kInternal,
                      "the simulated job hangs; please report this, with the command and its files");
    }
    for (StartedCall& call : result_.last_calls)
      for (size_t& tensor : call.which) tensor = piece_of_[tensor];
    result_.use = calls_.use();
    for (const auto& [name, calls] : before_counting_)
      if ((result_.use.algorithms[name] -= calls) == 0) result_.use.algorithms.erase(name);
    result_.plans_begun = engines_.plans_begun();
    result_.tuned = engines_.take_tuner_news();
    result_.way = engines_.best_way();
    return std::move(result_);
  }

 private:
  struct Loop {
    std::vector<size_t> lacks;  // [piece] parts of its last result that are not there
    size_t open = 0;            // pieces without a result
    int step = 0;
    size_t next = 0;          // the gradient of the forward pass, or the submission, that comes next
    Nanos origin = 0;         // from when submissions count; what the rank waits moves it
    bool is_waiting = false;  // for all pieces, or for the gradient of the forward pass
    std::optional<size_t> awaited = {};  // the exchange for which computing waits
    Nanos paused = 0;                    // since when
  };

  [[nodiscard]] double slower(Rank rank) const { return options_.slower[rank][loops_[rank].step]; }

  void begin_step(Rank rank) {
    if (rank == 0 && std::ssize(result_.steps[0]) == options_.counted_from)
      before_counting_ = calls_.use().algorithms;
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
        return engines_.wait_for(rank, first_of_[loop.next - 1]);
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
    const bool is_last = loop.next == program_.submissions.size();
    const Nanos ready = is_last ? program_.compute : program_.submissions[loop.next].at;
    const Nanos lag = options_.submit * static_cast<Nanos>(loop.next);
    agenda_.at(loop.origin + scaled(ready, slower(rank)) + lag, [this, rank, is_last] {
      if (is_last) return finish_computing(rank);
      const Submission& next = program_.submissions[loops_[rank].next++];
      submit(rank, next.piece);
      if (next.is_awaited && loops_[rank].lacks[next.piece] > 0) return pause(rank, next.piece);
      submit_next(rank);
    });
  }

  void submit(Rank rank, size_t piece) {
    Loop& loop = loops_[rank];
    RUEDA_CHECK(loop.lacks[piece] == 0, "a tensor is in flight once");
    if (options_.engine.ranks == 1) return;
    loop.lacks[piece] = tensors_[first_of_[piece]].members;
    ++loop.open;
    engines_.submit(rank, first_of_[piece]);
  }

  void pause(Rank rank, size_t piece) {
    loops_[rank].awaited = piece;
    loops_[rank].paused = agenda_.now();
    engines_.wait_for(rank, first_of_[piece]);
  }

  void go_on(Rank rank) {
    loops_[rank].origin += agenda_.now() - loops_[rank].paused;
    submit_next(rank);
  }

  void finish_computing(Rank rank) {
    Loop& loop = loops_[rank];
    result_.steps[rank].back().computed = agenda_.now();
    if (program_.cross_step || loop.open == 0) return end_step(rank);
    loop.is_waiting = true;
    engines_.wait_for_all(rank);
  }

  void complete(Rank rank, size_t piece) {
    Loop& loop = loops_[rank];
    if (--loop.lacks[piece] > 0) return;
    --loop.open;
    if (loop.awaited == piece) {
      loop.awaited.reset();
      agenda_.at(agenda_.now() + options_.wake, [this, rank] { go_on(rank); });
    }
    if (!loop.is_waiting) return;
    if (program_.cross_step ? piece + 1 != loop.next : loop.open > 0) return;
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
      if (options_.ended) options_.ended(loops_[rank].step + 1);
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
  std::vector<Exchanged> tensors_;
  std::vector<size_t> first_of_, piece_of_;  // [piece], [tensor]
  Engines engines_;
  std::vector<Loop> loops_;                         // [rank]
  std::map<std::string, int64_t> before_counting_;  // calls by algorithm
  Rank finished_ = 0;
  bool is_tick_ = false;
  JobResult result_;
};

}  // namespace

Result<JobResult> run_job(const Program& program, const JobOptions& options, Calls& calls) {
  return Job(program, options, calls).run();
}

}  // namespace rueda::simulate
