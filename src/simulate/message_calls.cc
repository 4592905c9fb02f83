#include <numeric>

#include "rueda/schedule/start_barrier.h"
#include "simulate/call_prices.h"
#include "simulate/specs.h"

namespace rueda::simulate {
namespace {

using schedule::Traffic;
using schedule::TrafficPlan;

double us_of(Nanos at) { return static_cast<double>(at) / 1e3; }

class MessageCalls final : public Calls {
 public:
  MessageCalls(const Layout& layout, const Costs& costs, const CallOptions& options)
      : ranks_(layout.topology.size()),
        costs_(costs),
        prices_(layout, costs, options),
        traffic_(layout.network, layout.topology.host_of, layout.topology.reduce_gbps,
                 core_costs(layout, costs)),
        members_(layout.topology.host_of.size()) {
    std::iota(members_.begin(), members_.end(), 0);
  }

  void start(Rank rank, const CallPlace& place, const control::Bucket& bucket, bool is_planned,
             Nanos now) override {
    const auto [at, is_new] = open_.try_emplace(place);
    if (is_new) begin(at->second, place, bucket, is_planned);
    traffic_.join(at->second.phases.front(), rank, us_of(now) + costs_.call_us + at->second.pack_us);
  }

  void cancel(const CallPlace& place) override {
    const auto at = open_.find(place);
    if (at == open_.end()) return;
    for (const Traffic::CallKey key : at->second.phases) {
      traffic_.abandon(key);
      place_of_.erase(key);
    }
    open_.erase(at);
  }

  [[nodiscard]] Nanos next() const override { return nanos_of(traffic_.next_us()); }

  void advance(std::vector<CallEnd>& ended) override {
    ended_.clear();
    traffic_.advance(ended_);
    for (const Traffic::Ended& one : ended_) {
      const CallPlace place = place_of_.at(one.call);
      Open& open = open_.at(place);
      if (one.call != open.phases.back()) {  // the start barrier
        traffic_.join(open.phases.back(), one.member, one.at_us);
        continue;
      }
      ended.push_back({.rank = one.member, .place = place, .at = nanos_of(one.at_us + open.pack_us)});
      if (++open.ended < ranks_) continue;
      for (const Traffic::CallKey key : open.phases) place_of_.erase(key);
      open_.erase(place);
    }
  }

  [[nodiscard]] CallsUse use() const override {
    return {.busy_us = traffic_.use(), .algorithms = algorithms_};
  }

 private:
  struct Open {
    std::vector<Traffic::CallKey> phases;  // a start barrier, where one is needed, and the call
    double pack_us = 0;                    // to pack the tensors, and again to unpack them
    Rank ended = 0;
  };

  void begin(Open& open, const CallPlace& place, const control::Bucket& bucket, bool is_planned) {
    const schedule::Spec spec = spec_of(bucket);
    const size_t tensors = bucket.entries.size();
    if (is_planned && schedule::needs_start_barrier(spec, tensors, ranks_, schedule::kCopiedBytes))
      open.phases.push_back(traffic_.open(prices_.plan_of(barrier_spec()), members_));
    const std::shared_ptr<const TrafficPlan> plan = prices_.plan_of(spec);
    open.phases.push_back(traffic_.open(plan, members_));
    if (tensors > 1) open.pack_us = bytes_of(bucket) / (costs_.copy_gbps * 1e3);
    ++algorithms_[std::string(plan->algorithm())];
    for (const Traffic::CallKey key : open.phases) place_of_.emplace(key, place);
  }

  Rank ranks_;
  Costs costs_;
  CallPrices prices_;
  Traffic traffic_;
  std::vector<Rank> members_;
  std::map<CallPlace, Open> open_;
  std::map<Traffic::CallKey, CallPlace> place_of_;
  std::map<std::string, int64_t> algorithms_;
  std::vector<Traffic::Ended> ended_;
};

}  // namespace

std::unique_ptr<Calls> make_message_calls(const Layout& layout, const Costs& costs,
                                          const CallOptions& options) {
  return std::make_unique<MessageCalls>(layout, costs, options);
}

}  // namespace rueda::simulate
