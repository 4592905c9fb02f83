#include <algorithm>
#include <cmath>
#include <numeric>

#include "rueda/backend/local/cost.h"
#include "rueda/base/check.h"
#include "rueda/schedule/algorithm.h"
#include "rueda/schedule/start_barrier.h"
#include "simulate/calls.h"
#include "simulate/specs.h"

namespace rueda::simulate {
namespace {

// A call has a part that grows with its bytes, which shares the links (or the cores) with other calls, and a
// latency, which does not.
class FormulaCalls final : public Calls {
 public:
  FormulaCalls(const Layout& layout, const Costs& costs, CallOptions options)
      : topology_(layout.topology), options_(std::move(options)), costs_(costs), layout_(layout) {
    topology_.chunk_bytes = options_.chosen_for.chunk_bytes = options_.chunk_bytes;
    // A schedule is as fast as its slowest link.
    const auto hosts = static_cast<int32_t>(layout.network.port_gbps.size());
    slowest_ = topology_;
    for (int32_t from = 0; from < hosts; ++from)
      for (int32_t to = 0; to < hosts; ++to) {
        if (from == to) continue;
        const schedule::LinkCost& link = layout.network.link(from, to);
        slowest_.remote.latency_us = std::max(slowest_.remote.latency_us, link.latency_us);
        slowest_.remote.bandwidth_gbps = std::min(slowest_.remote.bandwidth_gbps, link.bandwidth_gbps);
      }
    busy_.port_out.resize(static_cast<size_t>(hosts));
    busy_.port_in.resize(static_cast<size_t>(hosts));
    busy_.cores.resize(layout.machine_of.empty() ? topology_.host_of.size() : layout.cores.size());
  }

  void start(Rank, const CallPlace& place, const control::Bucket& bucket, bool is_planned,
             Nanos now) override {
    const auto [at, is_new] = open_.try_emplace(place);
    Open& open = at->second;
    if (is_new) begin(open, bucket, is_planned);
    if (++open.starters < topology_.size()) return;
    move_to(now);
    open.is_running = true;
    open.latency_end = static_cast<double>(now) / 1e3 + open.latency_us;
  }

  void cancel(const CallPlace& place) override { open_.erase(place); }

  [[nodiscard]] Nanos next() const override {
    double first = INFINITY;
    const auto sharing = static_cast<double>(transfers());
    for (const auto& [place, open] : open_)
      if (open.is_running)
        first = std::min(first, is_moving(open) ? now_us_ + open.left_us * sharing : open.latency_end);
    return std::isfinite(first) ? static_cast<Nanos>(std::ceil(first * 1e3)) : kNever;
  }

  void advance(std::vector<CallEnd>& ended) override {
    const Nanos at = next();
    move_to(at);
    for (auto one = open_.begin(); one != open_.end();) {
      const Open& open = one->second;
      if (!open.is_running || open.latency_end > now_us_ || open.left_us > 0) {
        ++one;
        continue;
      }
      for (Rank rank = 0; rank < topology_.size(); ++rank)
        ended.push_back({.rank = rank, .place = one->first, .at = at});
      one = open_.erase(one);
    }
  }

  [[nodiscard]] CallsUse use() const override { return {.busy_us = busy_, .algorithms = algorithms_}; }

 private:
  struct Cost {
    double latency_us = 0, transfer_us = 0, port_us = 0,
           core_us = 0;  // core_us: of the busiest machine's cores
    std::string_view algorithm;
  };
  struct Open {
    Rank starters = 0;
    bool is_running = false;
    double latency_us = 0, left_us = 0;
    double latency_end = 0;  // then its bytes move
  };

  [[nodiscard]] bool is_moving(const Open& open) const {
    return open.is_running && open.latency_end <= now_us_ && open.left_us > 0;
  }
  [[nodiscard]] int64_t transfers() const {
    return std::ranges::count_if(open_, [this](const auto& one) { return is_moving(one.second); });
  }

  // Calls whose bytes move share the links evenly.
  void move_to(Nanos now) {
    const double us = static_cast<double>(now) / 1e3, passed = us - now_us_;
    const auto sharing = static_cast<double>(transfers());
    for (auto& [place, open] : open_) {
      if (!is_moving(open)) continue;
      open.left_us -= passed / sharing;
      if (open.left_us < 1e-3) open.left_us = 0;
    }
    now_us_ = us;
  }

  void begin(Open& open, const control::Bucket& bucket, bool is_planned) {
    const schedule::Spec spec = spec_of(bucket);
    const size_t tensors = bucket.entries.size();
    const Cost& cost = cost_of(spec);
    open.latency_us = cost.latency_us + costs_.call_us;
    if (is_planned && schedule::needs_start_barrier(spec, tensors, topology_.size(), schedule::kCopiedBytes))
      open.latency_us += cost_of(barrier_spec()).latency_us;
    if (tensors > 1) open.latency_us += 2 * bytes_of(bucket) / (costs_.copy_gbps * 1e3);
    open.left_us = cost.transfer_us;
    ++algorithms_[std::string(cost.algorithm)];
    for (double& port : busy_.port_out) port += cost.port_us;
    for (double& port : busy_.port_in) port += cost.port_us;
    for (double& cores : busy_.cores) cores += cost.core_us;
  }

  const Cost& cost_of(const schedule::Spec& spec) {
    const auto [at, is_new] = known_.try_emplace({spec.what, spec.count});
    Cost& cost = at->second;
    if (!is_new) return cost;
    if (topology_.is_single_host()) return cost = cost_in_shared_memory(spec);
    const auto choice = schedule::choose(spec, options_.chosen_for, options_.algorithm);
    RUEDA_CHECK(choice.is_ok(), "an allreduce always has an algorithm");
    const schedule::Algorithm& algorithm = *choice.value().algorithm;
    const double whole = algorithm.cost_us(spec, slowest_).value_or(choice.value().cost_us);
    schedule::Spec small = spec;
    small.count = std::min<int64_t>(spec.count, topology_.size());
    cost.algorithm = algorithm.name;
    cost.latency_us = std::min(whole, algorithm.cost_us(small, slowest_).value_or(0));
    cost.transfer_us = whole - cost.latency_us;
    add_core_time(spec, cost);
    return cost;
  }

  // As backend/local runs it where tensors lie in shared buffers.
  [[nodiscard]] Cost cost_in_shared_memory(const schedule::Spec& spec) const {
    const auto bytes = static_cast<size_t>(spec.count) * size_of(spec.dtype);
    const auto ranks = static_cast<size_t>(topology_.size());
    const backend::LocalAlgorithm algorithm = backend::local_algorithm(bytes, ranks, true);
    const backend::MemoryCost memory = backend::memory_cost(topology_);
    const double latency = backend::local_us(0, ranks, algorithm, memory);
    return {.latency_us = latency,
            .transfer_us = backend::local_us(bytes, ranks, algorithm, memory) - latency,
            .algorithm = name_of(algorithm)};
  }

  // What the messages of the call cost the cores, where these are the limit: a rank sends and receives
  // 2(n-1)/n times the bytes, in chunks, as every algorithm that is chosen for many bytes does.
  void add_core_time(const schedule::Spec& spec, Cost& cost) {
    const double n = topology_.size(), hosts = topology_.host_count();
    if (hosts < 2 || spec.count == 0) return;
    const double bytes = static_cast<double>(spec.count) * static_cast<double>(size_of(spec.dtype));
    const double sent = 2 * (n - 1) / n * bytes,
                 chunks = std::ceil(sent / static_cast<double>(options_.chunk_bytes));
    const double of_rank = 2 * (chunks * costs_.message_us + sent * costs_.byte_ns / 1e3);
    cost.port_us = 2 * (hosts - 1) / hosts * bytes / (slowest_.remote.bandwidth_gbps * 1e3);
    cost.core_us = of_rank;
    if (!layout_.machine_of.empty()) {
      std::vector<double> ranks(layout_.cores.size());
      for (const int32_t host : topology_.host_of) ++ranks[layout_.machine_of[host]];
      cost.core_us = 0;
      double busiest = 0;
      for (size_t i = 0; i < ranks.size(); ++i) {
        busiest = std::max(busiest, ranks[i] * of_rank / layout_.cores[i]);
        cost.core_us = std::max(cost.core_us, ranks[i] * of_rank);
      }
      cost.transfer_us = std::max(cost.transfer_us, busiest);
    }
    cost.transfer_us = std::max(cost.transfer_us, of_rank);
  }

  schedule::Topology topology_, slowest_;
  CallOptions options_;
  Costs costs_;
  Layout layout_;
  double now_us_ = 0;
  std::map<CallPlace, Open> open_;
  std::map<std::pair<Collective, int64_t>, Cost> known_;
  std::map<std::string, int64_t> algorithms_;
  schedule::Traffic::Use busy_;
};

}  // namespace

std::unique_ptr<Calls> make_formula_calls(const Layout& layout, const Costs& costs, CallOptions options) {
  return std::make_unique<FormulaCalls>(layout, costs, std::move(options));
}

}  // namespace rueda::simulate
