// burst and replay: all gradients of a model.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <ctime>

#include "bench/exchanges.h"
#include "bench/gradients.h"
#include "bench/measure.h"
#include "bench/statistics.h"
#include "rueda/base/clock.h"

namespace rueda::bench {
namespace {

using workload::Model;
using workload::Parameter;

constexpr int kLeastBursts = 5;
constexpr int kReplaySteps = 6;
// The share of a link that TCP can use for payload: 1448 of the 1514 bytes of a frame.
constexpr double kPayloadShare = 0.957;

const Model& model_of(const Context& context) {
  return *std::ranges::find(context.request.models, context.job.model, &Model::name);
}

std::string wire_of(const Context& context) {
  return context.request.wire.empty() ? context.rank.default_wire() : context.request.wire;
}

std::unique_ptr<GradientExchange> allreduces_of(const Context& context, const Gradients& gradients) {
  return make_allreduces(context.rank, gradients,
                         Rank::find_wire(context.request.wire).value_or(RUEDA_WIRE_DEFAULT));
}

void sleep_until(Nanos when) {
  const timespec at{.tv_sec = when / kSecond, .tv_nsec = when % kSecond};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, nullptr) == EINTR) {
  }
}

// Fills the buffers, meets the other ranks, runs `step` between two readings of the clock, and
// checks the result.
template <class Step>
Status timed(const Context& context, const Gradients& gradients, int64_t iteration, Times& times,
             Step&& step) {
  // Of int8 with two roundings, and of the residuals of both. Inside a host sums are exact.
  const double rounding = context.rank.is_one_host() || wire_of(context) == "float32" ? 0 : 0.05;
  gradients.prepare(context.rank.rank(), iteration);
  if (Status met = context.rank.barrier(); !met.is_ok()) return met;
  times.starts.push_back(monotonic_now());
  Status status = step(times.starts.back());
  times.ends.push_back(monotonic_now());
  if (!status.is_ok()) return status;
  // Where ranks share cores, the check of a rank that ends early would delay the others.
  if (Status met = context.rank.barrier("bench.end"); !met.is_ok()) return met;
  times.is_right &= gradients.hold_sum(context.rank.size(), iteration, rounding);
  return status;
}

Status burst(const Context& context, const Model& model, const std::string& memory) {
  Result<Gradients> made = Gradients::make(context.rank, model, memory);
  const Result<bool> is_made = context.rank.all_agree(made.is_ok());
  if (!made.is_ok()) return made.status();
  if (!is_made.is_ok()) return is_made.status();
  if (!is_made.value())
    return {Code::kUnavailable, "another rank could not allocate memory for the gradients"};
  const Gradients& gradients = made.value();
  const std::unique_ptr<GradientExchange> exchange = allreduces_of(context, gradients);
  const bool is_new_each_time = context.job.mode == "fused";
  Times times;
  const auto once = [&](int64_t iteration) {
    return timed(context, gradients, iteration, times, [&](Nanos) {
      for (size_t i = 0; i < gradients.size(); ++i)
        if (Status begun = exchange->begin(i, is_new_each_time ? iteration : 0); !begun.is_ok()) return begun;
      return exchange->finish();
    });
  };
  constexpr int kWarmUps = 4;
  for (int64_t i = 0; i < kWarmUps; ++i)
    if (Status status = once(i); !status.is_ok()) return status;
  const double us = static_cast<double>(times.ends.back() - times.starts.back()) / 1e3;
  const Result<int> iterations = agree_iterations(context, us, kLeastBursts);
  if (!iterations.is_ok()) return iterations.status();
  start_measuring(context, times);
  for (int64_t i = 0; i < iterations.value(); ++i)
    if (Status status = once(kWarmUps + i); !status.is_ok()) return status;
  const Result<AllTimes> all = gather_times(context, times);
  if (!all.is_ok()) return all.status();
  const Summary summary = summarise(all.value().us);
  const double bandwidth = algorithm_bandwidth(gradients.bytes(), summary.median);
  return context.report.add(
      {{"model", model.name},
       {"mode", context.job.mode},
       {"ranks", context.rank.size()},
       {"tensors", gradients.size()},
       {"bytes", gradients.bytes()},
       {"memory", memory},
       {"transport", context.rank.transports()},
       {"algorithm", context.request.algorithm.empty() ? "auto" : context.request.algorithm},
       {"wire", wire_of(context)},
       {"iterations", all.value().us.size()},
       {"median_us", summary.median},
       {"min_us", summary.min},
       {"p99_us", summary.p99},
       {"algbw_gbps", bandwidth},
       {"busbw_gbps", bandwidth * bus_factor("allreduce", context.rank.size())},
       {"negotiation_messages", all.value().messages},
       {"correct", all.value().is_right}});
}

// A step's computing, stretched.
struct Pace {
  Nanos step = 0;
  std::vector<Nanos> ready = {};   // [tensors], from the beginning of the step
  std::vector<Nanos> needed = {};  // [tensors], the same: when the forward pass comes to each
  Nanos forward = 0;
};

Pace pace_of(const Context& context, const Model& model) {
  const double slowness = context.request.faults.slowness(context.rank.rank());
  const auto stretched = [dilation = dilation_of(context.request) * slowness](double ms) {
    return nanos(ms * dilation, kMillisecond);
  };
  Pace pace{.step = stretched(model.compute_ms), .forward = stretched(model.forward_ms())};
  for (const double ms : model.ready_ms()) pace.ready.push_back(stretched(ms));
  for (const double ms : model.needed_ms()) pace.needed.push_back(stretched(ms));
  return pace;
}

// The time that one link takes for a byte.
double link_ms_per_byte(const Context& context) {
  return 8e3 / (kPayloadShare * static_cast<double>(context.request.rate));
}

// What is wrong on purpose, for a row.
Row faults_row(const Faults& faults) {
  Row hosts = Row::array(), pairs = Row::array(), late = Row::array();
  for (const SlowHost& one : faults.hosts) hosts.push_back({{"host", one.host}, {"rate_bits", one.rate}});
  for (const SlowPair& one : faults.pairs)
    pairs.push_back({{"hosts", {one.first, one.second}}, {"rate_bits", one.rate}});
  for (const LateRank& one : faults.late) late.push_back({{"rank", one.rank}, {"share", one.share}});
  return {{"slow_hosts", hosts}, {"slow_pairs", pairs}, {"late", late}};
}

Status replay_row(const Context& context, const Model& model, const AllTimes& times) {
  const Summary summary = summarise(times.us);
  const double compute_ms = model.compute_ms * dilation_of(context.request);  // of a rank that is not late
  const int ranks = context.rank.size();
  const int hosts = (ranks + context.request.per_host - 1) / context.request.per_host;
  const double ms_per_byte = bus_factor("allreduce", hosts) * link_ms_per_byte(context);
  const double wire_ms = ms_per_byte * static_cast<double>(model.bytes());
  const double ideal_ms = context.request.cross_step
                              ? std::max(compute_ms, wire_ms)
                              : workload::earliest_end_ms(model, dilation_of(context.request), ms_per_byte);
  const double step_ms = summary.median / 1e3;
  const bool has_servers = context.job.strategy == "parameter-server";
  Row row = {{"model", model.name},
             {"ranks", ranks},
             {"hosts", hosts},
             {"rate_bits", context.request.rate},
             {"congestion", context.request.congestion},
             {"strategy", context.job.strategy},
             {"wire", wire_of(context)},
             {"servers", has_servers ? context.job.servers.of(ranks) : 0},
             {"placement", has_servers ? context.job.placement : ""},
             {"ready", model.stated_ready_ms.empty() ? "even" : "model"},
             {"cross_step", context.request.cross_step},
             {"bytes", model.bytes()},
             {"dilation", dilation_of(context.request)},
             {"steps", times.us.size()},
             {"compute_ms", compute_ms},
             {"step_ms", step_ms},
             {"step_mean_ms", summary.mean / 1e3},
             {"step_min_ms", summary.min / 1e3},
             {"step_max_ms", summary.max / 1e3},
             {"exposed_ms", std::max(0.0, step_ms - compute_ms)},
             {"wire_ms", wire_ms},
             {"efficiency", compute_ms / step_ms},
             {"ideal_efficiency", compute_ms / ideal_ms},
             {"correct", times.is_right}};
  row.update(faults_row(context.request.faults));
  return context.report.add(std::move(row));
}

int replay_steps(const Context& context) {  // the first ones warm up plans and TCP's windows
  return 1 + (context.request.iterations > 0 ? context.request.iterations : kReplaySteps);
}

// One step. It waits for the sums of the previous step and leaves its own in flight. Returns whether the sums
// that it waited for are right.
Result<bool> cross(CrossStep& gradients, const Pace& pace, int64_t step) {
  Nanos start = monotonic_now();  // moves by what the step waits
  bool is_right = true;
  for (size_t left = gradients.size(); left > 0; --left) {  // the forward pass needs them in reverse order
    sleep_until(start + pace.needed[left - 1]);
    const Nanos before = monotonic_now();
    const Result<bool> finished = gradients.finish(left - 1);
    if (!finished.is_ok()) return finished.status();
    is_right &= finished.value();
    start += monotonic_now() - before;
  }
  sleep_until(start + pace.forward);
  for (size_t i = 0; i < gradients.size(); ++i) {
    sleep_until(start + pace.ready[i]);
    if (Status begun = gradients.begin(i, step); !begun.is_ok()) return begun;
  }
  sleep_until(start + pace.step);
  return is_right;
}

// A step lasts from the start of its forward pass to the start of the next one.
Status replay_crossing(const Context& context, const Model& model) {
  Result<CrossStep> made = CrossStep::make(context.rank, model, context.request.memory.front());
  if (!made.is_ok()) return made.status();
  CrossStep& gradients = made.value();
  const Pace pace = pace_of(context, model);
  const int steps = replay_steps(context);
  Times times;
  if (Status met = context.rank.barrier(); !met.is_ok()) return met;
  for (int64_t step = 0; step < steps; ++step) {
    const Nanos start = monotonic_now();
    const Result<bool> crossed = cross(gradients, pace, step);
    if (!crossed.is_ok()) return crossed.status();
    times.is_right &= crossed.value();
    if (step == 0) continue;
    times.starts.push_back(start);
    times.ends.push_back(monotonic_now());
  }
  for (size_t i = 0; i < gradients.size(); ++i) {
    const Result<bool> finished = gradients.finish(i);
    if (!finished.is_ok()) return finished.status();
  }
  times.is_right &= gradients.hold_sum(steps - 1);
  const Result<AllTimes> all = gather_times(context, times);
  return all.is_ok() ? replay_row(context, model, all.value()) : all.status();
}

// ms_per_byte: of one link.
Result<ServerPlan> server_plan(const Context& context, const Model& model, double ms_per_byte) {
  const int ranks = context.rank.size(), servers = context.job.servers.of(ranks);
  if (servers > ranks)
    return Status(
        Code::kInvalidArgument,
        fmt::format("--servers {} is more than there are ranks, {}; each server is on the host of a "
                    "rank",
                    servers, ranks));
  std::vector<int64_t> counts;
  for (const Parameter& parameter : model.parameters) counts.push_back(parameter.count);
  if (context.job.placement == "cut")
    return ServerPlan{.transfers = cut_transfers(counts, servers), .servers = servers};
  std::vector<double> ready = model.ready_ms();
  for (double& ms : ready) ms *= dilation_of(context.request);
  return ServerPlan{.transfers = whole_transfers(counts, servers, ready, 4 * ms_per_byte * (ranks - 1)),
                    .servers = servers};
}

Result<std::unique_ptr<GradientExchange>> make_exchange(const Context& context, const Model& model,
                                                        const Gradients& gradients) {
  if (context.job.strategy != "parameter-server") return allreduces_of(context, gradients);
  Result<ServerPlan> plan = server_plan(context, model, link_ms_per_byte(context));
  if (!plan.is_ok()) return plan.status();
  return make_parameter_server(context.rank, gradients, std::move(plan).value());
}

struct Exchanged {
  GradientExchange& gradients;
  Exchanges& others;
  std::vector<workload::Submission> order;
};

// Computes and submits; waits for what computing needs, which delays what comes after. Returns whether what
// it waited for was right.
Result<bool> submit_all(const Context& context, const Model& model, const Exchanged& exchanged, Nanos start) {
  const double stretch = dilation_of(context.request) * context.request.faults.slowness(context.rank.rank());
  bool is_right = true;
  for (const workload::Submission& next : exchanged.order) {
    sleep_until(start + nanos(next.at_ms * stretch, kMillisecond));
    const Status begun =
        next.is_exchange ? exchanged.others.begin(next.index) : exchanged.gradients.begin(next.index, 0);
    if (!begun.is_ok()) return begun;
    if (!next.is_exchange || !model.exchanges[next.index].is_awaited) continue;
    const Nanos before = monotonic_now();
    const Result<bool> finished = exchanged.others.finish(next.index);
    if (!finished.is_ok()) return finished.status();
    is_right &= finished.value();
    start += monotonic_now() - before;
  }
  sleep_until(start + nanos(model.compute_ms * stretch, kMillisecond));
  const Result<bool> finished = exchanged.others.finish_all();
  if (!finished.is_ok()) return finished.status();
  return is_right && finished.value();
}

}  // namespace

Status measure_burst(const Context& context) {
  for (const std::string& memory : context.request.memory)
    if (Status status = burst(context, model_of(context), memory); !status.is_ok()) return status;
  return Status::ok();
}

Status measure_replay(const Context& context) {
  const Model& model = model_of(context);
  if (context.request.cross_step) return replay_crossing(context, model);
  Result<Gradients> made = Gradients::make(context.rank, model, context.request.memory.front());
  if (!made.is_ok()) return made.status();
  const Gradients& gradients = made.value();
  const Result<std::unique_ptr<GradientExchange>> exchange = make_exchange(context, model, gradients);
  if (!exchange.is_ok()) return exchange.status();
  Result<Exchanges> others = Exchanges::make(context.rank, model, context.request.memory.front());
  if (!others.is_ok()) return others.status();
  Times times;
  const Exchanged exchanged{
      .gradients = *exchange.value(), .others = others.value(), .order = workload::submissions_of(model)};
  const auto step = [&](Nanos start) {
    const Result<bool> done = submit_all(context, model, exchanged, start);
    if (!done.is_ok()) return done.status();
    times.is_right &= done.value();
    return exchange.value()->finish();
  };
  const int steps = replay_steps(context);
  for (int64_t i = 0; i < steps; ++i) {
    if (Status status = timed(context, gradients, i, times, step); !status.is_ok()) return status;
  }
  times.starts.erase(times.starts.begin());
  times.ends.erase(times.ends.begin());
  const Result<AllTimes> all = gather_times(context, times);
  return all.is_ok() ? replay_row(context, model, all.value()) : all.status();
}

}  // namespace rueda::bench
