#include <algorithm>
#include <cmath>

#include "rueda/schedule/start_barrier.h"
#include "simulate/call_prices.h"
#include "simulate/specs.h"

namespace rueda::simulate {
namespace {

// A call has a part that grows with its bytes, which shares the links (or the cores) with other calls, and a
// latency, which does not. A link that is busy for half of a call has room for a second one.
class PricedCalls final : public Calls {
 public:
  PricedCalls(const Layout& layout, const Costs& costs, const CallOptions& options)
      : ranks_(layout.topology.size()),
        costs_(costs),
        is_on_gpus_(!layout.gpus.empty()),
        prices_(layout, costs, options) {}

  void start(Rank, const CallPlace& place, const control::Bucket& bucket, bool is_planned,
             Nanos now) override {
    const auto [at, is_new] = open_.try_emplace(place);
    Open& open = at->second;
    if (is_new) begin(open, bucket, is_planned);
    if (++open.starters < ranks_) return;
    move_to(now);
    open.is_running = true;
    open.latency_end = static_cast<double>(now) / 1e3 + open.latency_us;
  }

  void cancel(const CallPlace& place) override { open_.erase(place); }

  [[nodiscard]] Nanos next() const override {
    double first = INFINITY;
    const double slowdown = crowding();
    for (const auto& [place, open] : open_)
      if (open.is_running)
        first = std::min(first, is_moving(open) ? now_us_ + open.left_us * slowdown : open.latency_end);
    return std::isfinite(first) ? static_cast<Nanos>(std::ceil(first * 1e3)) : kNever;
  }

  void advance(std::vector<CallEnd>& ended) override {
    const Nanos at = next();
    move_to(at);
    for (auto one = open_.begin(); one != open_.end();) {
      const Open& open = one->second;
      if (!open.is_running || !is_past_latency(open) || open.left_us > 0) {
        ++one;
        continue;
      }
      for (Rank rank = 0; rank < ranks_; ++rank)
        ended.push_back({.rank = rank, .place = one->first, .at = at});
      one = open_.erase(one);
    }
  }

  [[nodiscard]] CallsUse use() const override { return {.busy_us = busy_, .algorithms = algorithms_}; }

 private:
  struct Open {
    Rank starters = 0;
    bool is_running = false;
    double latency_us = 0, left_us = 0;
    double busy_share = 1;   // of the time in which its bytes move, for what is busiest
    double latency_end = 0;  // then its bytes move
  };

  // Up to a nanosecond, which is what virtual time is told in.
  [[nodiscard]] bool is_past_latency(const Open& open) const { return open.latency_end < now_us_ + 1e-3; }
  [[nodiscard]] bool is_moving(const Open& open) const {
    return open.is_running && is_past_latency(open) && open.left_us > 0;
  }
  // How many times longer the calls take whose bytes move now: together they keep a port or a core busy for
  // no more than all of the time.
  [[nodiscard]] double crowding() const {
    double busy = 0;
    for (const auto& [place, open] : open_)
      if (is_moving(open)) busy += open.busy_share;
    return std::max(1.0, busy);
  }

  void move_to(Nanos now) {
    const double us = static_cast<double>(now) / 1e3, passed = (us - now_us_) / crowding();
    for (auto& [place, open] : open_) {
      if (!is_moving(open)) continue;
      open.left_us -= passed;
      if (open.left_us < 1e-3) open.left_us = 0;
    }
    now_us_ = us;
  }

  void begin(Open& open, const control::Bucket& bucket, bool is_planned) {
    const schedule::Spec spec = spec_of(bucket);
    const size_t tensors = bucket.entries.size();
    const CallPrice& price = prices_.of(spec);
    open.latency_us = price.latency_us + costs_.call_us;
    open.left_us = price.transfer_us;
    open.busy_share = price.transfer_us > 0 ? std::min(1.0, price.busiest_us / price.transfer_us) : 0;
    add(price.busy_us);
    ++algorithms_[std::string(price.algorithm)];
    if (is_on_gpus_) return;
    if (tensors > 1) open.latency_us += 2 * bytes_of(bucket) / (costs_.copy_gbps * 1e3);
    if (is_planned && schedule::needs_start_barrier(spec, tensors, ranks_, schedule::kCopiedBytes))
      open.latency_us += prices_.of(barrier_spec()).latency_us;
  }

  void add(const schedule::Traffic::Use& more) {
    const auto sum = [](std::vector<double>& all, const std::vector<double>& add) {
      all.resize(std::max(all.size(), add.size()));
      for (size_t i = 0; i < add.size(); ++i) all[i] += add[i];
    };
    sum(busy_.port_out, more.port_out);
    sum(busy_.port_in, more.port_in);
    sum(busy_.cores, more.cores);
    sum(busy_.uplinks, more.uplinks);
  }

  Rank ranks_;
  Costs costs_;
  bool is_on_gpus_;  // where packing costs next to nothing, and no call needs a start barrier
  CallPrices prices_;
  double now_us_ = 0;
  std::map<CallPlace, Open> open_;
  std::map<std::string, int64_t> algorithms_;
  schedule::Traffic::Use busy_;
};

}  // namespace

std::unique_ptr<Calls> make_priced_calls(const Layout& layout, const Costs& costs,
                                         const CallOptions& options) {
  return std::make_unique<PricedCalls>(layout, costs, options);
}

}  // namespace rueda::simulate
