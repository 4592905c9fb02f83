// The registry of algorithms and the choice among them. To add an algorithm, write a file with cost and
// build, and a line in registry.cc; the verifier suite then runs it for world sizes 1 to 32. Pure and
// immutable: any thread.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "rueda/base/status.h"
#include "rueda/schedule/step.h"
#include "rueda/schedule/topology.h"

namespace rueda::schedule {

// On which topologies an algorithm keeps the reproducibility guarantee: it reduces each element in the
// canonical order of the topology (reduction_order.h), whatever the offset of the element in the buffer.
enum class PreservesOrder : uint8_t { kNever, kWhereHostsHaveOneRank, kAlways };

struct Algorithm {
  std::string_view name;  // "ring"
  Collective what;
  PreservesOrder preserves_order;
  // The predicted time in microseconds. Empty if the algorithm does not support this spec on this topology.
  std::optional<double> (*cost_us)(const Spec&, const Topology&);
  Schedule (*build)(const Spec&, const Topology&, Rank);
  bool is_encoded = false;  // for calls with a wire type, and only for those
};

// Unless an algorithm is forced, only those for which this is true are chosen.
bool is_order_preserving(const Algorithm& algorithm, const Topology& topology);

std::span<const Algorithm> algorithms();
const Algorithm* find_algorithm(Collective what, std::string_view name);

struct Choice {
  const Algorithm* algorithm = nullptr;
  double cost_us = 0;
};

// Whether the fields of the spec fit one another and the size of the group. If not, an argument of the
// caller is wrong.
Status check_spec(const Spec& spec, Rank size);

// forced: the name of an algorithm, or empty. If that algorithm does not support this collective, the cost
// model chooses; so it does unless spec.tuning names one of algorithms(), counted from 1, that keeps the
// reproducibility guarantee here. All ranks of a group make the same choice, because they have the same
// values.
Result<Choice> choose(const Spec& spec, const Topology& topology, std::string_view forced);
// The topology with the unit of pipelining that spec.tuning asks for, if it does.
Topology tuned_for(const Spec& spec, Topology topology);
// The reason for the choice, for people: "direct: 41.0 us; ring: 57.0 us; …" (the cheapest is chosen), and
// whether a forced algorithm supports the call.
Result<std::string> explain(const Spec& spec, const Topology& topology, std::string_view forced);

}  // namespace rueda::schedule
