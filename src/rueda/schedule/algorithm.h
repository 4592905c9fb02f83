// The registry of algorithms and the choice among them. To add one: a file with cost and build, a line in
// registry.cc; the verifier suite then runs it for world sizes 1 to 32. Pure and immutable: any thread.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "rueda/base/status.h"
#include "rueda/schedule/step.h"
#include "rueda/schedule/topology.h"

namespace rueda::schedule {

// Where an algorithm keeps the reproducibility guarantee: each element reduced by the canonical association
// of the topology (fold.h), whatever its offset in the buffer.
enum class Keeps : uint8_t { kNever, kWhereHostsHaveOneRank, kAlways };

struct Algorithm {
  std::string_view name;  // "ring"
  Collective what;
  Keeps keeps_order;
  // Predicted microseconds, or nothing when the algorithm cannot serve this spec on this topology.
  std::optional<double> (*cost_us)(const Spec&, const Topology&);
  Schedule (*build)(const Spec&, const Topology&, Rank);
};

// Only algorithms of which this is true are chosen unless one is forced.
bool is_order_preserving(const Algorithm& algorithm, const Topology& topology);

std::span<const Algorithm> algorithms();
const Algorithm* find_algorithm(Collective what, std::string_view name);

struct Choice {
  const Algorithm* algorithm = nullptr;
  double cost_us = 0;
};

// Do the spec's fields fit one another and the size of the group? A fault here is the caller's argument.
Status check_spec(const Spec& spec, Rank size);

// forced: an algorithm name, or empty. A forced name that does not serve this collective falls back to the
// model. Every rank of a group computes the same choice from the same values.
Result<Choice> choose(const Spec& spec, const Topology& topology, std::string_view forced);
// Why choose() takes what it takes, for people: "direct: 41.0 us; ring: 57.0 us; …", the cheapest is chosen;
// and whether a forced name serves.
Result<std::string> explain(const Spec& spec, const Topology& topology, std::string_view forced);

}  // namespace rueda::schedule
