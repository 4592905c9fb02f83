#include "timeline/make_workload.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <unordered_map>

#include "timeline/ready_times.h"
#include "timeline/typical.h"
#include "timeline/units.h"

namespace rueda::timeline {
namespace {

constexpr size_t kLeastSteps = 3;  // of which there must be times
constexpr double kMostSpread = 0.9999;
constexpr size_t kMostCommand = 120;  // bytes

// Of ranks, of which there may be two: of an even number the mean of the two in the middle.
double middle_of(const std::vector<double>& values) {
  std::vector<double> negative(values);
  for (double& value : negative) value = -value;
  return (median(values) - median(negative)) / 2;  // median() takes the lower one
}

// A tensor on all ranks.
struct JobTensor {
  std::string name;
  Collective what = Collective::kAllreduce;
  int64_t bytes = 0;
  size_t first = 0;
  std::vector<double> ready_ms = {};  // of each rank the median of its steps
  int64_t waited_for = 0, times = 0;
  [[nodiscard]] double ready() const { return middle_of(ready_ms); }
  [[nodiscard]] bool is_waited_for() const { return 2 * waited_for > times; }
};

// Half of the distance between the values that 16 and 84 % are below: the standard deviation of a normal
// distribution, and hardly touched by a few steps that take much longer (a checkpoint).
double spread_of(std::vector<double> values) {
  std::ranges::sort(values);
  const auto at = [&](double part) {
    return values[static_cast<size_t>(std::lround(part * static_cast<double>(values.size() - 1)))];
  };
  const double middle = at(0.5);
  return middle > 0 ? std::min((at(0.84) - at(0.16)) / 2 / middle, kMostSpread) : 0;
}

// Standard deviation by mean.
double relative_deviation(const std::vector<double>& values) {
  if (values.size() < 2) return 0;
  const auto count = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return mean > 0 ? std::min(std::sqrt(squares / (count - 1)) / mean, kMostSpread) : 0;
}

Status no_marks(const RankFile& file) {
  return {Code::kInvalidArgument,
          file.path +
              " has no marks of steps, so nothing says when one begins; let the program call "
              "hvd.mark_step() at the end of each step, or use DistributedOptimizer, and run it again."};
}

Status no_details(const RankFile& file) {
  return {Code::kInvalidArgument,
          file.path +
              " says of calls when they began, and not of each tensor when it was ready, because it "
              "is a flight record or the timeline was off; run some 30 steps with RUEDA_TIMELINE=t.json, "
              "or between hvd.start_timeline(\"t.json\") and hvd.stop_timeline(), and give t.json."};
}

Status too_few(const RankFile& file) {
  return {Code::kInvalidArgument,
          fmt::format(
              "{} has {} of steps, and fewer than {} whole steps with gradients after those that warm up; "
              "record {} steps or more.",
              file.path, count_text(file.steps.marks, "mark"), kLeastSteps,
              warm_ups_of(0) + static_cast<int64_t>(kLeastSteps) + 2)};
}

class Maker {
 public:
  explicit Maker(const Job& job) : job_(job), knows_waits_(says_when_it_waits(job)) {}

  Status add(const RankFile& file, Names& names) {
    if (file.steps.marks == 0) return no_marks(file);
    Result<StepEvents> events = read_step_events(file, job_.epoch, names, left_out_);
    if (!events.is_ok()) return events.status();
    if (!events.value().has_details) return no_details(file);
    const ReadyTimes times = ready_times_of(std::move(events).value(), knows_waits_);
    if (times.computed_ms.size() < kLeastSteps) return too_few(file);
    steps_ = std::max(steps_, times.computed_ms.size());
    computed_ms_.push_back(median(times.computed_ms));
    step_spreads_.push_back(spread_of(times.computed_ms));
    for (const auto& [name, tensor] : times.tensors) {
      if (2 * tensor.ready_ms.size() < times.computed_ms.size()) {
        ++rare_[name];
        continue;
      }
      JobTensor& of_job = tensors_[name];
      if (of_job.ready_ms.empty())
        of_job = {.name = name, .what = tensor.what, .bytes = tensor.bytes, .first = tensor.first};
      of_job.ready_ms.push_back(median(tensor.ready_ms));
      of_job.waited_for += tensor.waited_for;
      of_job.times += std::ssize(tensor.ready_ms);
    }
    return Status::ok();
  }

  Result<MadeWorkload> finish(const std::string& name) &&;

 private:
  std::vector<JobTensor> take_allreduces();
  std::vector<JobTensor> take_exchanges();
  [[nodiscard]] std::string left_out_text() const;

  const Job& job_;
  bool knows_waits_;
  size_t steps_ = 0;
  std::vector<double> computed_ms_, step_spreads_;  // of each rank
  std::unordered_map<std::string, JobTensor> tensors_;
  std::unordered_map<std::string, int64_t> rare_;
  size_t waited_for_ = 0;  // tensors
  LeftOut left_out_;
};

bool comes_before(const JobTensor& one, const JobTensor& other) {
  return std::pair(one.ready(), one.first) < std::pair(other.ready(), other.first);
}

// The gradients of a workload, in the order in which they are ready.
std::vector<JobTensor> Maker::take_allreduces() {
  std::vector<JobTensor> taken;
  for (auto& [name, tensor] : tensors_)
    if (tensor.what == Collective::kAllreduce) taken.push_back(std::move(tensor));
  const auto is_waited_for = [](const JobTensor& tensor) { return tensor.is_waited_for(); };
  waited_for_ = static_cast<size_t>(std::ranges::count_if(taken, is_waited_for));
  if (waited_for_ < taken.size()) std::erase_if(taken, is_waited_for);
  std::ranges::sort(taken, comes_before);
  return taken;
}

// What else a step exchanges.
std::vector<JobTensor> Maker::take_exchanges() {
  std::vector<JobTensor> taken;
  for (auto& [name, tensor] : tensors_)
    if (tensor.what != Collective::kAllreduce) taken.push_back(std::move(tensor));
  std::ranges::sort(taken, comes_before);
  return taken;
}

std::string Maker::left_out_text() const {
  std::vector<std::string> parts;
  for (const auto& [why, names] : left_out_)
    parts.push_back(fmt::format("{} {}", count_text(std::ssize(names), "tensor"), why));
  if (!rare_.empty())
    parts.push_back(count_text(std::ssize(rare_), "tensor") + " in fewer than half of the steps");
  if (waited_for_ > 0)
    parts.push_back(count_text(static_cast<int64_t>(waited_for_), "tensor") +
                    " that the program waits for at once");
  return parts.empty() ? "" : fmt::format("Left out: {}.", fmt::join(parts, ", "));
}

Result<MadeWorkload> Maker::finish(const std::string& name) && {
  const std::vector<JobTensor> exchanges = take_exchanges(), tensors = take_allreduces();
  if (tensors.empty() && exchanges.empty())
    return Status(
        Code::kInvalidArgument,
        fmt::format("No collective recurs under the same name in half of the steps. {}{}Give each tensor "
                    "a name that is the same in every step (name=\"…\").",
                    left_out_text(), left_out_.empty() && rare_.empty() ? "" : " "));
  MadeWorkload made;
  workload::Model& model = made.model;
  model.name = name;
  model.world = job_.size;
  model.compute_ms = middle_of(computed_ms_);
  model.spread = workload::Spread{.step = middle_of(step_spreads_), .rank = relative_deviation(computed_ms_)};
  const std::string ranks = static_cast<Rank>(computed_ms_.size()) == job_.size
                                ? count_text(job_.size, "rank")
                                : fmt::format("{} of {} ranks", computed_ms_.size(), job_.size);
  const RankFile& first = job_.ranks.front();
  model.source = fmt::format("made by rueda timeline workload from {} of {} of job {:08x}: {}",
                             count_text(static_cast<int64_t>(steps_), "step"), ranks,
                             static_cast<uint32_t>(first.job), first.command.substr(0, kMostCommand));
  model.compute_source =
      fmt::format("median step of {} without what the program waited for collectives", ranks);
  made.remarks = job_.remarks;
  if (!knows_waits_)
    made.remarks.push_back(
        "The program does not say when it waits for a collective; it is taken to wait from its "
        "last tensor of a step to the end of the collectives, or of the step.");
  for (const JobTensor& tensor : tensors) {
    model.parameters.push_back({tensor.name, (tensor.bytes + 3) / 4});
    model.stated_ready_ms.push_back(std::min(tensor.ready(), model.compute_ms));
  }
  for (const JobTensor& tensor : exchanges)
    model.exchanges.push_back({.name = tensor.name,
                               .what = tensor.what,
                               .count = (tensor.bytes + 3) / 4,
                               .at_ms = std::min(tensor.ready(), model.compute_ms),
                               .is_awaited = tensor.is_waited_for()});
  std::string left_out = left_out_text();
  if (!tensors.empty() && waited_for_ == tensors.size()) {
    left_out.clear();
    made.remarks.push_back("The program waits for each allreduce at once; a replay overlaps them.");
  }
  if (!left_out.empty()) {
    made.remarks.push_back(left_out);
    left_out[0] = 'l';
    model.source += "; " + left_out.substr(0, left_out.size() - 1);
  }
  return made;
}

}  // namespace

Result<MadeWorkload> make_workload(const Job& job, const std::string& name, Names& names) {
  Maker maker(job);
  for (const RankFile& file : job.ranks)
    if (Status status = maker.add(file, names); !status.is_ok()) return status;
  return std::move(maker).finish(name);
}

}  // namespace rueda::timeline
