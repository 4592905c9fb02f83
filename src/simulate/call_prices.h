// How long one call takes when nothing else runs: its messages under virtual time, or what the library's cost
// model says of calls in shared memory. Calls of equal specs are priced once. One thread.
#pragma once

#include <map>
#include <memory>
#include <string_view>
#include <tuple>
#include <utility>

#include "rueda/schedule/algorithm.h"
#include "rueda/schedule/traffic.h"
#include "simulate/calls.h"

namespace rueda::simulate {

struct CallPrice {
  double latency_us = 0;   // of the same call with next to nothing in it
  double transfer_us = 0;  // what its bytes add
  double busiest_us = 0;  // what a second call at the same time adds, at least while the busiest port is busy
  schedule::Traffic::Use busy_us = {};
  std::string_view algorithm = "";
};

class CallPrices {
 public:
  CallPrices(const Layout& layout, const Costs& costs, const CallOptions& options);
  const CallPrice& of(const schedule::Spec& spec);
  // The schedules of all ranks, by the algorithm that the library chooses.
  std::shared_ptr<const schedule::TrafficPlan> plan_of(const schedule::Spec& spec);

 private:
  [[nodiscard]] const schedule::Algorithm& algorithm_for(const schedule::Spec& spec) const;
  [[nodiscard]] std::shared_ptr<const schedule::TrafficPlan> build(const schedule::Algorithm& algorithm,
                                                                   const schedule::Spec& spec) const;
  [[nodiscard]] size_t messages_of(const schedule::Algorithm& algorithm, const schedule::Spec& spec) const;
  CallPrice price(const schedule::Spec& spec);
  CallPrice price_as_on_fewer_hosts(const schedule::Algorithm& algorithm, const schedule::Spec& spec,
                                    const schedule::Spec& small);
  [[nodiscard]] CallPrice price_by_nccl(const schedule::Spec& spec) const;
  [[nodiscard]] CallPrice price_in_shared_memory(const schedule::Spec& spec) const;
  [[nodiscard]] double busiest_of(const schedule::Traffic::Use& use) const;
  // Calls that are alike, at once.
  struct Run {
    double us = 0;  // until the last rank has ended the last call
    schedule::Traffic::Use busy_us = {};
  };
  [[nodiscard]] Run run(const schedule::Algorithm& algorithm, const schedule::Spec& spec, size_t calls) const;
  [[nodiscard]] CallPrice price_by_messages(const schedule::Algorithm& algorithm, const schedule::Spec& spec,
                                            const schedule::Spec& small) const;

  Layout layout_;
  Costs costs_;
  CallOptions options_;
  std::unique_ptr<CallPrices> fewer_;  // where a call has too many messages
  using Key = std::tuple<Collective, int64_t, CallTuning>;
  [[nodiscard]] static Key key_of(const schedule::Spec& spec) { return {spec.what, spec.count, spec.tuning}; }
  std::map<Key, CallPrice> known_;
  std::map<Key, std::shared_ptr<const schedule::TrafficPlan>> plans_;
};

schedule::CoreCosts core_costs(const Layout& layout, const Costs& costs);

}  // namespace rueda::simulate
