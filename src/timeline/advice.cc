#include <fmt/ranges.h>

#include <algorithm>

#include "timeline/lateness.h"
#include "timeline/summary.h"
#include "timeline/units.h"
#include "timeline/words.h"

namespace rueda::timeline {
namespace {

constexpr double kMostlyPlanned = 0.5;
constexpr int64_t kFewSteps = 10;  // of fewer no rank is called slow
constexpr size_t kShownSteps = 8;  // of those in which a rank held the others up

double part(const Summary& summary, StepShare share) {
  return summary.shares[static_cast<size_t>(share)] / summary.step_length;
}

bool is_one_host(const Summary& summary) {
  return std::ranges::all_of(
      summary.by_rank, [&](const RankSummary& rank) { return rank.host == summary.by_rank.front().host; });
}

bool measures_input(const Summary& summary) {
  return std::ranges::any_of(summary.by_rank, [](const RankSummary& rank) {
    return rank.shares[static_cast<size_t>(StepShare::kInput)] > 0;
  });
}

std::string why_late(const Summary& summary, const RankSummary& rank) {
  switch (rank.why) {
    case Lateness::kCompute:
      return "it computes " + time_text(rank.delay) + " longer than the median rank, or " +
             (measures_input(summary) ? "sleeps."
                                      : "sleeps, or waits for its data loader: no rank measures its input, "
                                        "which counts as compute "
                                        "then (hvd.timed_input measures it).") +
             " Look at what else runs on its cores, at their clock rate and cooling, and at batches that are "
             "larger than those of other ranks";
    case Lateness::kInput:
      return "it waits " + time_text(rank.delay) +
             " longer for its input than the median rank. Look at the storage that it reads, and give its "
             "data "
             "loader more workers or a longer prefetch queue";
    case Lateness::kTransfer:
      return "its transfers last " + time_text(rank.delay) + " longer than those of the median rank, " +
             (slow_links_of(summary).empty()
                  ? "so it comes later to the next ones. Look at its link and at what else runs on its cores"
                  : "because of the slow links");
    case Lateness::kNone:
    case Lateness::kRarely:
    case Lateness::kInputAtTimes:
    case Lateness::kComputeAtTimes:
    case Lateness::kUnknown:
      break;
  }
  return {};
}

// "th" of 10, "nd" of 2
std::string_view ordinal_ending(int64_t number) {
  if (number / 10 % 10 == 1) return "th";
  switch (number % 10) {
    case 1:
      return "st";
    case 2:
      return "nd";
    case 3:
      return "rd";
    default:
      return "th";
  }
}

// "in 20 of 200 steps (every 10th, from step 9)"
std::string at_times(const Summary& summary, const LateSteps& late) {
  const std::string_view one = late.are_calls ? "call" : summary.has_steps ? "step" : "window";
  std::string when = late.every > 0 ? fmt::format("every {}{}, from {} {}", late.every,
                                                  ordinal_ending(late.every), one, late.first.front())
                                    : fmt::format("{}{}", fmt::join(late.first, ", "),
                                                  late.count > std::ssize(late.first) ? ", …" : "");
  return fmt::format("in {} of {} {}s ({})", late.count, late.of, one, when);
}

std::string why_at_times(const Summary& summary, const RankSummary& rank) {
  const std::string longer = time_text(rank.at_times.longer);
  if (rank.why == Lateness::kInputAtTimes)
    return "it waits " + longer +
           " longer for its input there than it usually does. Look at the storage that it reads, and give "
           "its "
           "data loader more workers or a longer prefetch queue, so that a slow batch does not empty it";
  return "it computes " + longer + " longer there than it usually does, or sleeps" +
         (measures_input(summary) ? "" : ", or waits for its data loader (hvd.timed_input measures that)") +
         ". Look there for logging, an evaluation, garbage collection, and batches that are longer";
}

std::string why_rarely(const RankSummary& rank) {
  const auto inputs = std::ranges::count_if(rank.worst, &LongWait::is_input);
  return 2 * inputs > std::ssize(rank.worst)
             ? "it waited for its input there. Look at the storage that it reads, and at what fills its queue"
             : "look there for a checkpoint, an evaluation, garbage collection, a stopped process or a "
               "hanging "
               "file system";
}

// "step 7 alone", "steps 3, 12 and 20 alone"
std::string few_steps(const Summary& summary, const RankSummary& rank) {
  std::vector<int64_t> steps;
  for (const LongWait& one : rank.worst) steps.push_back(one.step);
  std::ranges::sort(steps);
  std::string text = summary.has_steps ? "step" : "window";
  if (steps.size() > 1) text += 's';
  const size_t shown = std::min(steps.size(), kShownSteps);
  for (size_t i = 0; i < shown; ++i) {
    const bool is_last = i > 0 && i + 1 == steps.size();
    text += fmt::format("{}{}", i == 0 ? " " : is_last ? " and " : ", ", steps[i]);
  }
  if (shown < steps.size()) text += fmt::format(" and {} more", steps.size() - shown);
  return text + " alone";
}

bool has_cause(const Summary& summary, const RankSummary& rank) {
  return rank.why != Lateness::kUnknown && rank.why != Lateness::kNone &&
         rank.cost >= kWorthAdvice * summary.step_length;
}

// "": all the time.
std::string when_late(const Summary& summary, const RankSummary& rank) {
  if (rank.late_in.count() == 0) return {};
  return fmt::format(" Nine tenths of that were in {} {} to {} of {}.",
                     summary.has_steps ? "steps" : "windows", rank.late_in.first, rank.late_in.last,
                     summary.steps);
}

// Ranks that are late although they do no more than others: no one of them is to blame.
void advise_in_turn(const Summary& summary, std::vector<Advice>& advice) {
  const double waited = waited_in_turn(summary);
  const RankSummary* most = nullptr;
  for (const RankSummary& rank : summary.by_rank)
    if (rank.why == Lateness::kUnknown && (most == nullptr || rank.cost > most->cost)) most = &rank;
  if (most == nullptr || waited < kWorthAdviceInTurn * summary.step_length) return;
  if (summary.has_steps && summary.steps < kFewSteps) {
    advice.push_back(
        {waited / summary.step_length,
         fmt::format("Ranks wait {} of each step for one another, most of all for rank {} (host {}). {} too "
                     "few to tell whether a rank is slow: record {} or more.",
                     time_text(waited), most->rank, most->host,
                     summary.steps == 1 ? "1 step is" : fmt::format("{} steps are", summary.steps),
                     kFewSteps)});
    return;
  }
  const bool is_beside =
      std::ranges::any_of(summary.by_rank, [&](const RankSummary& rank) { return has_cause(summary, rank); });
  advice.push_back(
      {waited / summary.step_length,
       fmt::format(
           "{}anks wait {} of each step for one another in turn, most of all for rank {} (host {}), but "
           "none of these computes, or waits for its input, longer than others in most steps. If they "
           "share cores with one another or with other processes, give each its own (rueda run "
           "--bind-cores); else look at steps of different length: batches that differ, garbage "
           "collection, evaluation or logging on one rank.",
           is_beside ? "Apart from the ranks that are named with a cause, r" : "R", time_text(waited),
           most->rank, most->host)});
}

void advise_ranks(const Summary& summary, std::vector<Advice>& advice) {
  for (const RankSummary& rank : summary.by_rank) {
    const double gain = rank.cost / summary.step_length;
    if (!has_cause(summary, rank)) continue;
    if (rank.why == Lateness::kRarely) {
      double waited = 0;
      for (const LongWait& one : rank.worst) waited += one.time;
      const double rest = std::max(rank.cost * static_cast<double>(summary.steps) - waited, 0.0);
      advice.push_back(
          {gain, fmt::format(
                     "The other ranks waited {} for rank {} (host {}) in {}, and {} in all others together: "
                     "{}. `rueda timeline merge` draws what the rank did then.",
                     time_text(waited), rank.rank, rank.host, few_steps(summary, rank), time_text(rest),
                     why_rarely(rank))});
      continue;
    }
    if (rank.why == Lateness::kInputAtTimes || rank.why == Lateness::kComputeAtTimes) {
      advice.push_back(
          {gain, fmt::format("The other ranks wait {} of each step for rank {} (host {}), most of it {}: {}.",
                             time_text(rank.cost), rank.rank, rank.host, at_times(summary, rank.at_times),
                             why_at_times(summary, rank))});
      continue;
    }
    advice.push_back({gain, fmt::format("The other ranks wait {} of each step for rank {} (host {}): {}.{}",
                                        time_text(rank.cost), rank.rank, rank.host, why_late(summary, rank),
                                        when_late(summary, rank))});
  }
}

void advise_input(const Summary& summary, std::vector<Advice>& advice) {
  // What one rank alone waits for counts above: the others wait for that rank.
  double least = 1;
  for (const RankSummary& rank : summary.by_rank)
    least = std::min(least, rank.shares[static_cast<size_t>(StepShare::kInput)] / summary.step_length);
  if (least < kWorthAdvice) return;
  advice.push_back(
      {least, fmt::format("Every rank waits at least {} of its time for input: give the data loader more "
                          "workers or a longer prefetch queue, or prepare the data beforehand.",
                          percent_text(least))});
}

// When all compute longer at once no rank waits for another, so that no rank is named.
void advise_together(const Summary& summary, std::vector<Advice>& advice) {
  const LateSteps& longer = summary.all_longer;
  const double compute = part(summary, StepShare::kCompute);
  if (longer.count == 0 || compute <= 0) return;
  const double gain = longer.longer * static_cast<double>(longer.count) /
                      (static_cast<double>(summary.steps) * summary.step_length);
  const std::string most = 2 * gain > compute ? "most" : percent_text(gain / compute);
  const std::string more = time_text(longer.longer);
  const bool is_one = summary.by_rank.size() == 1;
  advice.push_back(
      {gain, fmt::format(
                 "Compute takes {} of the time, {} of it {}: {}{}. Look there for logging, an evaluation, a "
                 "checkpoint, garbage collection, and batches that are longer.",
                 percent_text(compute), most, at_times(summary, longer),
                 is_one ? fmt::format("the rank computes {} longer there than usual, or sleeps", more)
                        : fmt::format("all ranks compute {} longer there than usual, or sleep", more),
                 measures_input(summary)
                     ? ""
                     : fmt::format(", or {} for data (no rank measures its input, which hvd.timed_input "
                                   "does)",
                                   is_one ? "waits" : "wait"))});
}

// Returns the part of a step's time that equally fast links would save.
double advise_links(const Summary& summary, std::vector<Advice>& advice) {
  double most = 0;
  // during: the part of the job
  const auto gain = [&](double mine, double usual, double during = 1) {
    const double saved = part(summary, StepShare::kTransfer) * (1 - mine / usual) * during;
    most = std::max(most, saved);
    return saved;
  };
  double best_out = 0, best_in = 0;
  for (const LinkSummary& link : summary.links) {
    best_out = std::max(best_out, link.out_gbps);
    best_in = std::max(best_in, link.in_gbps);
  }
  for (const LinkSummary& link : summary.links) {
    if (!link.is_slow_out && !link.is_slow_in) continue;
    double saved = 0;
    std::string does;
    const auto add = [&](const char* what, double mine, double best) {
      saved = std::max(saved, gain(mine, best));
      does += fmt::format("{}{} at {} (the best rank: {})", does.empty() ? "" : " and ", what,
                          gbps_text(mine), gbps_text(best));
    };
    if (link.is_slow_out) add("sends", link.out_gbps, best_out);
    if (link.is_slow_in) add("receives", link.in_gbps, best_in);
    advice.push_back(
        {saved,
         fmt::format("The link of {} is slow: it {} on a busy connection. All ranks wait for it. Look "
                     "at its cable, its port and its speed (ethtool), and at other traffic of its host.",
                     rank_text(summary, link.rank), does)});
  }
  for (const SlowLink& pair : summary.slow_pairs)
    advice.push_back(
        {gain(pair.speed, pair.usual),
         fmt::format("The link {} is slow: bytes move at {} on a busy connection, and at {} between other "
                     "ranks. All ranks wait for it. Look at the cables and switches between their hosts, and "
                     "at other traffic there.",
                     link_text(summary, pair), gbps_text(pair.speed), gbps_text(pair.usual))});
  for (const SlowTime& time : summary.slow_times) {
    const double length = static_cast<double>(summary.steps) * summary.step_length;
    advice.push_back(
        {gain(time.link.speed, time.link.usual, std::min(1.0, (time.until - time.from) / length)),
         fmt::format("The link {} was slow from {} to {} after the beginning: down to {} on a busy "
                     "connection, and others do {}. Look at what else {}, and the switch, carried then.",
                     link_text(summary, time.link), time_text(time.from), time_text(time.until),
                     gbps_text(time.link.speed), gbps_text(time.link.usual),
                     time.link.other < 0 ? "its host" : "these hosts")});
  }
  return most;
}

// by_links: what faster links save, which is said already.
void advise_transfer(const Summary& summary, double by_links, std::vector<Advice>& advice) {
  const double rest = part(summary, StepShare::kTransfer) - by_links;
  if (rest >= kWorthAdvice) {
    const std::string speed = summary.bus_gbps > 0 && by_links <= 0
                                  ? " at " + gbps_text(summary.bus_gbps) + " for each rank"
                                  : std::string();
    advice.push_back(
        {rest,
         fmt::format("{}raining stands still for {} of a step while bytes are transferred{}. `rueda bench "
                     "allreduce` says whether the {} gives more. compression=Compression.fp16 halves the "
                     "bytes, backward_passes_per_step=N sends them less often, and a larger batch hides "
                     "more of them.",
                     by_links > 0 ? "Apart from slow links, t" : "T", time_text(rest * summary.step_length),
                     speed, is_one_host(summary) ? "host" : "network")});
  }
  const double packing = part(summary, StepShare::kPacking);
  if (packing >= kWorthAdvice)
    advice.push_back(
        {packing,
         fmt::format("Packing and unpacking small tensors takes {} of a step: on one host, gradients "
                     "in shared buffers need none (RUEDA_TORCH_ARENA=1, rueda_alloc).",
                     percent_text(packing))});
}

void advise_cores(const Summary& summary, std::vector<Advice>& advice) {
  const double waking = part(summary, StepShare::kWaking);
  if (waking < kWorthAdvice) return;
  advice.push_back(
      {waking,
       fmt::format("The training thread gets no core for {} of a step after its results are there: run "
                   "fewer threads (OMP_NUM_THREADS, data loader workers) or fewer ranks on a host, and "
                   "give each rank cores of its own (rueda run --bind-cores).",
                   time_text(summary.shares[static_cast<size_t>(StepShare::kWaking)]))});
}

void advise_negotiation(const Summary& summary, std::vector<Advice>& advice) {
  const double negotiation = part(summary, StepShare::kNegotiation) + part(summary, StepShare::kQueue);
  if (negotiation < kWorthAdvice || summary.size == 1) return;  // a single rank learns no plan
  const double planned = summary.calls > 0 ? summary.planned_calls / summary.calls : 0;
  std::string text = fmt::format(
      "Negotiation and queues take {} of a step, and {} of the transfers ran by a learned "
      "plan.",
      percent_text(negotiation), percent_text(planned));
  if (!summary.departures.empty()) {
    const auto most =
        std::ranges::max_element(summary.departures, {}, [](const auto& each) { return each.second; });
    text += fmt::format(" Plans ended {}, most often because: {}.", count_text(most->second, "time"),
                        most->first);
  } else if (planned < kMostlyPlanned) {
    text += " A plan is learned when each step reduces the same tensors under the same names.";
  }
  advice.push_back({negotiation, std::move(text)});
}

}  // namespace

std::vector<Advice> advise(const Summary& summary) {
  std::vector<Advice> advice;
  if (summary.steps == 0 || summary.step_length <= 0) return advice;
  advise_ranks(summary, advice);
  advise_in_turn(summary, advice);
  advise_input(summary, advice);
  advise_together(summary, advice);
  advise_transfer(summary, advise_links(summary, advice), advice);
  advise_cores(summary, advice);
  advise_negotiation(summary, advice);
  std::erase_if(advice, [](const Advice& one) { return one.gain < kWorthAdvice; });
  std::ranges::stable_sort(advice, std::greater<>(), &Advice::gain);
  return advice;
}

}  // namespace rueda::timeline
