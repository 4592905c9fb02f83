#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "bench/measure.h"
#include "bench/pattern.h"
#include "bench/statistics.h"
#include "rueda/base/clock.h"

namespace rueda::bench {
namespace {

constexpr int kWarmUps = 4;
constexpr int kLeastIterations = 5, kMostIterations = 2000;

struct Kind {
  std::string_view name;
  rueda_collective what;
};
constexpr std::array<Kind, 6> kKinds = {{{"allreduce", RUEDA_ALLREDUCE},
                                         {"allgather", RUEDA_ALLGATHER},
                                         {"broadcast", RUEDA_BROADCAST},
                                         {"reducescatter", RUEDA_REDUCESCATTER},
                                         {"alltoall", RUEDA_ALLTOALL},
                                         {"barrier", RUEDA_BARRIER}}};

// One collective at one size: its buffers, their contents before the call, and the expected
// contents after it.
class Workload {
 public:
  static Result<Workload> make(const Context& context, rueda_collective what, int64_t bytes,
                               const std::string& memory) {
    const int64_t ranks = context.rank.size();
    const bool is_whole = what == RUEDA_ALLREDUCE || what == RUEDA_BROADCAST;
    const int64_t wanted = std::max<int64_t>(1, (bytes + 3) / 4);
    const int64_t share = is_whole ? wanted : (wanted + ranks - 1) / ranks;
    const int64_t whole = is_whole ? wanted : share * ranks;
    const int64_t in = what == RUEDA_ALLGATHER ? share : whole;
    const int64_t out = is_whole ? 0 : what == RUEDA_REDUCESCATTER ? share : whole;  // 0 = in place
    Result<Buffer> input = Buffer::make(context.rank.library(), memory, in);
    if (!input.is_ok()) return input.status();
    Result<Buffer> output = Buffer::make(context.rank.library(), memory, std::max<int64_t>(1, out));
    if (!output.is_ok()) return output.status();
    Workload load(context.rank, what, std::move(input).value(), std::move(output).value());
    load.share_ = share;
    load.bytes_ = 4 * whole;
    load.name_ = fmt::format("bench.{}.{}.{}", static_cast<int>(what), whole, memory);
    return load;
  }

  [[nodiscard]] int64_t bytes() const { return bytes_; }
  [[nodiscard]] BenchOperation operation() const {
    const bool is_in_place = what_ == RUEDA_ALLREDUCE || what_ == RUEDA_BROADCAST;
    return {.what = what_,
            .name = name_.c_str(),
            .count = std::ssize(input_.values()),
            .input = input_.values().data(),
            .output = is_in_place ? input_.values().data() : output_.values().data()};
  }

  void prepare(int64_t iteration) const { fill(input_.values(), pattern_of(rank_->rank(), iteration)); }

  [[nodiscard]] bool is_right(int64_t iteration) const {
    const int ranks = rank_->size();
    if (what_ == RUEDA_BROADCAST) return holds(input_.values(), pattern_of(0, iteration));
    if (what_ == RUEDA_ALLREDUCE) return holds(input_.values(), pattern_of_sum(ranks, iteration));
    if (what_ == RUEDA_REDUCESCATTER)
      return holds(output_.values(), pattern_of_sum(ranks, iteration, rank_->rank() * share_));
    for (int from = 0; from < ranks; ++from) {  // allgather, alltoall: a block of each rank
      const int64_t first = what_ == RUEDA_ALLTOALL ? rank_->rank() * share_ : 0;
      const auto block =
          output_.values().subspan(static_cast<size_t>(from * share_), static_cast<size_t>(share_));
      if (!holds(block, pattern_of(from, iteration, first))) return false;
    }
    return true;
  }

 private:
  Workload(Rank& rank, rueda_collective what, Buffer input, Buffer output)
      : rank_(&rank), what_(what), input_(std::move(input)), output_(std::move(output)) {}
  Rank* rank_;
  rueda_collective what_;
  Buffer input_, output_;
  int64_t share_ = 0, bytes_ = 0;
  std::string name_;
};

// Times any call. run() performs iteration i, checks its result and records its times.
template <class Run>
Result<AllTimes> repeat(const Context& context, Run&& run) {
  Times times;
  for (int64_t i = 0; i < kWarmUps; ++i)
    if (Status status = run(i, times); !status.is_ok()) return status;
  const double us = static_cast<double>(times.ends.back() - times.starts.back()) / 1e3;
  const Result<int> iterations = agree_iterations(context, us, kLeastIterations);
  if (!iterations.is_ok()) return iterations.status();
  start_measuring(context, times);
  for (int64_t i = 0; i < iterations.value(); ++i)
    if (Status status = run(kWarmUps + i, times); !status.is_ok()) return status;
  return gather_times(context, times);
}

Status add_row(const Context& context, int64_t bytes, const std::string& memory, const AllTimes& times) {
  const Summary summary = summarise(times.us);
  const double bandwidth = algorithm_bandwidth(bytes, summary.median);
  const double factor = bus_factor(context.request.what, context.rank.size());
  return context.report.add({{"collective", context.request.what},
                             {"ranks", context.rank.size()},
                             {"bytes", bytes},
                             {"memory", memory},
                             {"transport", context.rank.transports()},
                             {"algorithm", times.algorithm},
                             {"iterations", times.us.size()},
                             {"median_us", summary.median},
                             {"min_us", summary.min},
                             {"p99_us", summary.p99},
                             {"mean_us", summary.mean},
                             {"algbw_gbps", bandwidth},
                             {"busbw_gbps", bandwidth * factor},
                             {"negotiation_messages", times.messages},
                             {"correct", times.is_right}});
}

Status measure_barrier(const Context& context) {
  const Result<AllTimes> times = repeat(context, [&](int64_t i, Times& noted) {
    if (Status met = context.rank.barrier(); !met.is_ok()) return met;
    noted.starts.push_back(monotonic_now());
    Status status = context.rank.barrier();
    noted.ends.push_back(monotonic_now());
    if (i < kWarmUps) noted.algorithm = context.rank.algorithm();
    return status;
  });
  return times.is_ok() ? add_row(context, 0, "none", times.value()) : times.status();
}

Status measure_size(const Context& context, rueda_collective what, int64_t bytes, const std::string& memory) {
  const Result<Workload> made = Workload::make(context, what, bytes, memory);
  const Result<bool> is_made = context.rank.all_agree(made.is_ok());
  if (!made.is_ok()) return made.status();
  if (!is_made.is_ok()) return is_made.status();
  if (!is_made.value()) return {Code::kUnavailable, "another rank could not allocate memory for this size"};
  const Workload& load = made.value();
  const BenchOperation operation = load.operation();
  const Result<AllTimes> times = repeat(context, [&](int64_t i, Times& noted) {
    load.prepare(i);
    if (Status met = context.rank.barrier(); !met.is_ok()) return met;
    noted.starts.push_back(monotonic_now());
    Status status = context.rank.run(operation);
    noted.ends.push_back(monotonic_now());
    if (!status.is_ok()) return status;
    if (i < kWarmUps) noted.algorithm = context.rank.algorithm();
    if (Status met = context.rank.barrier("bench.end"); !met.is_ok()) return met;  // see timed()
    noted.is_right = noted.is_right && load.is_right(i);
    return status;
  });
  return times.is_ok() ? add_row(context, load.bytes(), memory, times.value()) : times.status();
}

}  // namespace

void start_measuring(const Context& context, Times& times) {
  times.starts.clear();
  times.ends.clear();
  times.messages_before = context.rank.negotiation_messages();
}

Result<AllTimes> gather_times(const Context& context, const Times& mine) {
  const int64_t sent = context.rank.negotiation_messages() - mine.messages_before;
  const Result<std::vector<int64_t>> messages = context.rank.gather(std::span(&sent, 1));
  if (!messages.is_ok()) return messages.status();
  Result<std::vector<int64_t>> starts = context.rank.gather(mine.starts);
  if (!starts.is_ok()) return starts.status();
  Result<std::vector<int64_t>> ends = context.rank.gather(mine.ends);
  if (!ends.is_ok()) return ends.status();
  const Result<bool> is_right = context.rank.all_agree(mine.is_right);
  if (!is_right.is_ok()) return is_right.status();
  return AllTimes{
      .us = call_times_us(starts.value(), ends.value(), context.rank.size(), context.is_clock_shared),
      .is_right = is_right.value(),
      .algorithm = mine.algorithm,
      .messages = std::accumulate(messages.value().begin(), messages.value().end(), int64_t{0})};
}

Result<int> agree_iterations(const Context& context, double us, int least) {
  if (context.request.iterations > 0) return context.request.iterations;
  const auto mine = static_cast<int64_t>(us * 1e3);
  const Result<std::vector<int64_t>> all = context.rank.gather(std::span(&mine, 1));
  if (!all.is_ok()) return all.status();
  const double longest = static_cast<double>(std::max<int64_t>(1, *std::ranges::max_element(all.value())));
  return static_cast<int>(std::clamp(context.request.seconds * 1e9 / longest, static_cast<double>(least),
                                     static_cast<double>(kMostIterations)));
}

Status measure_collective(const Context& context) {
  const auto kind = std::ranges::find(kKinds, context.request.what, &Kind::name);
  if (kind->what == RUEDA_BARRIER) return measure_barrier(context);
  for (const std::string& memory : context.request.memory)
    for (const int64_t bytes : context.request.sizes)
      if (Status status = measure_size(context, kind->what, bytes, memory); !status.is_ok()) return status;
  return Status::ok();
}

Status measure_latency(const Context& context) {
  constexpr int kCalls = 2000;
  for (const std::string& memory : context.request.memory)
    for (const int64_t bytes : context.request.sizes) {
      const int64_t count = std::max<int64_t>(1, bytes / 4);
      Result<Buffer> buffer = Buffer::make(context.rank.library(), memory, count);
      if (!buffer.is_ok()) return buffer.status();
      const std::span<float> values = buffer.value().values();
      const std::string name = fmt::format("bench.latency.{}.{}", count, memory);
      const BenchOperation operation{
          .name = name.c_str(), .count = count, .input = values.data(), .output = values.data()};
      const int calls = context.request.iterations > 0 ? context.request.iterations : kCalls;
      Times times;
      for (int64_t i = 0; i < calls + calls / 10; ++i) {  // back to back; the first tenth warms up
        if (i == calls / 10) start_measuring(context, times);
        fill(values, pattern_of(context.rank.rank(), i));
        const Nanos start = monotonic_now();
        if (Status status = context.rank.run(operation); !status.is_ok()) return status;
        const Nanos end = monotonic_now();
        times.is_right &= holds(values, pattern_of_sum(context.rank.size(), i));
        times.starts.push_back(start);
        times.ends.push_back(end);
      }
      // Ranks do not wait for one another between calls, so each time is measured on one rank; the
      // slower rank counts.
      const std::string algorithm = context.rank.algorithm();
      Context own_clocks{context};
      own_clocks.is_clock_shared = false;
      const Result<AllTimes> all = gather_times(own_clocks, times);
      if (!all.is_ok()) return all.status();
      const Summary summary = summarise(all.value().us);
      const double bandwidth = algorithm_bandwidth(4 * count, summary.median);
      Row row = {{"collective", "allreduce"},
                 {"ranks", context.rank.size()},
                 {"bytes", 4 * count},
                 {"memory", memory},
                 {"transport", context.rank.transports()},
                 {"algorithm", algorithm},
                 {"iterations", calls},
                 {"median_us", summary.median},
                 {"min_us", summary.min},
                 {"mean_us", summary.mean},
                 {"p90_us", summary.p90},
                 {"p99_us", summary.p99},
                 {"p999_us", summary.p999},
                 {"max_us", summary.max},
                 {"histogram", histogram(all.value().us)},
                 {"algbw_gbps", bandwidth},
                 {"busbw_gbps", bandwidth * bus_factor("allreduce", context.rank.size())},
                 {"negotiation_messages", all.value().messages},
                 {"correct", all.value().is_right}};
      if (Status status = context.report.add(std::move(row)); !status.is_ok()) return status;
    }
  return Status::ok();
}

}  // namespace rueda::bench
