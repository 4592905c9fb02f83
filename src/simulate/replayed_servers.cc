// Parameter servers as `rueda bench replay` has them (bench/parameter_server.cc).
#include <algorithm>
#include <deque>
#include <numeric>

#include "bench/gradients.h"
#include "rueda/base/check.h"
#include "rueda/schedule/algorithm.h"
#include "simulate/server_network.h"
#include "simulate/servers.h"

namespace rueda::simulate {
namespace {

using bench::Transfer;

Nanos of_us(double us) { return static_cast<Nanos>(us * 1e3); }

bench::ServerPlan replayed_plan(const Program& program, const Servers& servers, int ranks,
                                double ms_per_byte) {
  const int count = servers.count.of(ranks);
  std::vector<int64_t> counts;
  std::vector<double> ready;
  for (const Gradient& gradient : program.gradients) {
    counts.push_back(gradient.count);
    ready.push_back(static_cast<double>(gradient.ready) / 1e6);
  }
  return {.transfers = servers.is_whole
                           ? bench::whole_transfers(counts, count, ready, 4 * ms_per_byte * (ranks - 1))
                           : bench::cut_transfers(counts, count),
          .servers = count};
}

class ReplayedServers {
 public:
  ReplayedServers(const Program& program, const JobOptions& options, const Servers& servers,
                  const Platform& platform)
      : program_(program),
        options_(options),
        platform_(platform),
        ranks_(options.engine.ranks),
        plan_(replayed_plan(program, servers, ranks_, 1 / (platform.chosen_for.remote.bandwidth_gbps * 1e6))),
        network_(platform.layout, platform.costs, platform.layout.topology.host_of, agenda_),
        members_(static_cast<size_t>(ranks_)),
        alltoalls_(2 * plan_.transfers.size()),
        plans_(alltoalls_.size()),
        workers_(static_cast<size_t>(ranks_)) {
    std::iota(members_.begin(), members_.end(), 0);
    result_.steps.resize(workers_.size());
  }

  Result<JobResult> run() {
    begin_step();
    const Status status = network_.run_until([this] { return step_ == options_.steps; });
    if (!status.is_ok()) return status;
    result_.use = {.busy_us = network_.use(),
                   .algorithms = {{"alltoall", calls_that_count(options_, result_)}}};
    return std::move(result_);
  }

 private:
  struct Worker {
    size_t next = 0;                           // gradient
    size_t ready = 0, pushed = 0, done = 0;    // transfers
    int64_t under_way = 0;                     // elements
    std::deque<size_t> arrived, in_order;      // alltoalls that have ended, and that are to run
    bool is_busy = false, is_running = false;  // the thread that serves; the engine
  };
  struct Alltoall {  // the push of transfer i is number 2 i, its answer 2 i + 1
    Rank asked = 0;
    ServerNetwork::Key call = 0;
  };

  // All ranks begin together, as they do after the barrier of a replay.
  void begin_step() {
    std::ranges::fill(alltoalls_, Alltoall());
    std::ranges::fill(workers_, Worker());
    ended_ = 0;
    began_ = agenda_.now();
    for (Rank rank = 0; rank < ranks_; ++rank) {
      result_.steps[rank].push_back({.began = began_});
      compute_next(rank);
    }
  }

  void compute_next(Rank rank) {
    const Worker& worker = workers_[rank];
    const bool is_last = worker.next == program_.gradients.size();
    const Nanos ready = is_last ? program_.compute : program_.gradients[worker.next].ready;
    const double longer = options_.slower[rank][step_];
    agenda_.at(began_ + static_cast<Nanos>(static_cast<double>(ready) * longer), [this, rank, is_last] {
      Worker& mine = workers_[rank];
      if (is_last) {
        result_.steps[rank].back().computed = agenda_.now();
        return end_if_done(rank);
      }
      while (mine.ready < plan_.transfers.size() && plan_.transfers[mine.ready].last_tensor <= mine.next)
        ++mine.ready;
      ++mine.next;
      serve(rank);
      compute_next(rank);
    });
  }

  void end_if_done(Rank rank) {
    StepTimes& times = result_.steps[rank].back();
    if (times.computed == 0 || workers_[rank].done < plan_.transfers.size()) return;
    times.ended = agenda_.now() + (workers_[rank].done > 0 ? options_.wake : 0);
    if (rank == 0) {
      result_.calls.push_back(calls_);
      result_.messages.push_back(messages_);
    }
    if (++ended_ < ranks_) return;
    Nanos last = 0;
    for (const auto& steps : result_.steps) last = std::max(last, steps.back().ended);
    agenda_.at(last, [this] {
      if (++step_ < options_.steps) begin_step();
    });
  }

  // ---- the thread that serves: answers come before pushes ----
  void serve(Rank rank) {
    Worker& worker = workers_[rank];
    if (worker.is_busy) return;
    const auto work = [&](double us, std::function<void()> then) {
      worker.is_busy = true;
      network_.work(rank, us, [this, rank, then = std::move(then)] {
        workers_[rank].is_busy = false;
        then();
        serve(rank);
      });
    };
    if (!worker.arrived.empty()) {
      const size_t number = worker.arrived.front();
      const size_t transfer = number / 2;
      worker.arrived.pop_front();
      if (number % 2 == 0)
        return work(sum_us(rank, transfer), [this, rank, number] { submit(rank, number + 1); });
      return work(pack_us(transfer), [this, rank, transfer] { take(rank, transfer); });
    }
    if (worker.pushed == worker.ready) return;
    const size_t transfer = worker.pushed;
    const int64_t elements = plan_.transfers[transfer].elements();
    if (worker.under_way > 0 && worker.under_way + elements > plan_.most_under_way()) return;
    ++worker.pushed;
    worker.under_way += elements;
    work(pack_us(transfer), [this, rank, transfer] { submit(rank, 2 * transfer); });
  }

  void take(Rank rank, size_t transfer) {
    ++workers_[rank].done;
    workers_[rank].under_way -= plan_.transfers[transfer].elements();
    end_if_done(rank);
  }

  [[nodiscard]] double copy_us(int64_t elements) const {
    return 4 * static_cast<double>(elements) / (platform_.costs.copy_gbps * 1e3);
  }
  // Parts of several tensors are put side by side.
  [[nodiscard]] double pack_us(size_t transfer) const {
    const Transfer& one = plan_.transfers[transfer];
    const auto is_first = [&](const bench::ServerPiece& piece) {
      return piece.tensor == one.pieces.front().tensor;
    };
    return std::ranges::all_of(one.pieces, is_first) ? 0 : copy_us(one.elements());
  }
  // All ranks' parts are read, and the sum is written once for each rank, into new memory.
  [[nodiscard]] double sum_us(Rank rank, size_t transfer) const {
    const int64_t all = ranks_ * owned(rank, transfer);
    return 4 * static_cast<double>(all) / (platform_.layout.topology.reduce_gbps * 1e3) + 2 * copy_us(all);
  }
  [[nodiscard]] int64_t owned(Rank rank, size_t transfer) const {
    int64_t mine = 0;
    for (const bench::ServerPiece& piece : plan_.transfers[transfer].pieces)
      if (plan_.rank_of(piece.server, ranks_) == rank) mine += piece.count;
    return mine;
  }

  // ---- the engines: alltoalls are negotiated, and run one after the other ----
  void submit(Rank rank, size_t number) {
    const Nanos submitted = agenda_.now() + options_.submit;
    if (rank == 0) return agenda_.at(submitted, [this, number] { ask(number); });
    ++messages_;
    agenda_.at(submitted + options_.engine.flight,
               [this, number] { agenda_.at(take_turn(), [this, number] { ask(number); }); });
  }

  Nanos take_turn() { return rank_0_free_ = std::max(rank_0_free_, agenda_.now()) + options_.engine.control; }

  void ask(size_t number) {
    Alltoall& one = alltoalls_[number];
    if (++one.asked < ranks_) return;
    ++calls_;
    one.call = network_.open(plan_of(number), members_, [this, number](Rank rank) { end(rank, number); });
    for (Rank rank = 0; rank < ranks_; ++rank) {
      if (rank > 0) ++messages_;
      const Nanos told = rank == 0 ? agenda_.now() : take_turn() + options_.engine.flight;
      agenda_.at(told, [this, rank, number] {
        workers_[rank].in_order.push_back(number);
        start_next(rank);
      });
    }
  }

  void start_next(Rank rank) {
    Worker& worker = workers_[rank];
    if (worker.is_running || worker.in_order.empty()) return;
    worker.is_running = true;
    const size_t number = worker.in_order.front();
    worker.in_order.pop_front();
    network_.join(alltoalls_[number].call, rank, agenda_.now() + of_us(platform_.costs.call_us));
  }

  void end(Rank rank, size_t number) {
    workers_[rank].is_running = false;
    start_next(rank);
    agenda_.at(agenda_.now() + options_.wake, [this, rank, number] {
      workers_[rank].arrived.push_back(number);
      serve(rank);
    });
  }

  const std::shared_ptr<const schedule::TrafficPlan>& plan_of(size_t number) {
    std::shared_ptr<const schedule::TrafficPlan>& plan = plans_[number];
    if (plan) return plan;
    const auto n = static_cast<size_t>(ranks_);
    std::vector<int64_t> counts(n * n);
    for (size_t owner = 0; owner < n; ++owner)
      for (size_t other = 0; other < n; ++other)
        counts[number % 2 == 0 ? other * n + owner : owner * n + other] =
            owned(static_cast<Rank>(owner), number / 2);
    const schedule::Spec spec{.what = Collective::kAlltoall,
                              .count = std::reduce(counts.begin(), counts.end()),
                              .counts = counts,
                              .scale = {},
                              .segment_counts = {}};
    // By the cost model, Bruck's algorithm is up to 2 % cheaper for even blocks on slow links. What the
    // library measures at init passes a token bucket faster than its rate, and then this one is chosen.
    const auto choice = schedule::choose(spec, platform_.chosen_for, "pairwise");
    RUEDA_CHECK(choice.is_ok(), "an alltoall always has an algorithm");
    std::vector<schedule::Schedule> schedules;
    for (Rank rank = 0; rank < ranks_; ++rank)
      schedules.push_back(in_parts(choice.value().algorithm->build(spec, platform_.layout.topology, rank)));
    return plan = std::make_shared<const schedule::TrafficPlan>(spec, std::move(schedules));
  }

  const Program& program_;
  const JobOptions& options_;
  const Platform& platform_;
  const Rank ranks_;
  const bench::ServerPlan plan_;
  Agenda agenda_;
  ServerNetwork network_;
  std::vector<Rank> members_;
  std::vector<Alltoall> alltoalls_;
  std::vector<std::shared_ptr<const schedule::TrafficPlan>> plans_;  // [alltoalls]
  std::vector<Worker> workers_;                                      // [rank]
  int step_ = 0;
  Rank ended_ = 0;
  Nanos began_ = 0, rank_0_free_ = 0;
  int64_t calls_ = 0, messages_ = 0;
  JobResult result_;
};

}  // namespace

Result<JobResult> run_replayed_servers(const Program& program, const JobOptions& options,
                                       const Servers& servers, const Platform& platform) {
  return ReplayedServers(program, options, servers, platform).run();
}

}  // namespace rueda::simulate
