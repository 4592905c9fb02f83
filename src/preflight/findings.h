// What is wrong, from the facts of the hosts and the measurements. Pure.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "preflight/clocks.h"
#include "preflight/host_facts.h"
#include "preflight/links.h"

namespace rueda::preflight {

struct Finding {
  std::string kind;                // docs/preflight.md lists the kinds
  std::vector<std::string> hosts;  // that it blames; may be empty
  std::string sentence;            // what, where, what to do
  bool is_broken = true;           // true: status 1; false: advice
};

using Findings = std::vector<Finding>;

// Limits and resources of each host. ranks: of the job.
Findings check_hosts(std::span<const HostFacts> hosts, int ranks);
// What should be equal on all hosts and is not. The odd ones are named, the majority is taken for right.
Findings compare_hosts(std::span<const HostFacts> hosts);

Findings check_clocks(std::span<const std::string> hosts, std::span<const ClockOffset> offsets);

// least_gbit_per_s: what the user demands of every pair; 0 = nothing.
Findings check_links(std::span<const std::string> hosts, std::span<const PairMeasurement> pairs,
                     const LinkVerdict& verdict, double least_gbit_per_s);
// Hosts that stay far below the rate of their network cards.
Findings check_cards(std::span<const HostFacts> hosts, const LinkVerdict& verdict);

bool is_broken(const Findings& findings);

// "a", "a and b", "a, b and 3 others"
std::string names_text(std::span<const std::string> names);
std::string gbit_text(double gbit_per_s);  // "9.41 Gbit/s", "94.1 Mbit/s"

// One unit for all rates that stand side by side.
struct RateUnit {
  const char* name;                                         // "Gbit/s"
  double of_gbit;                                           // so many are 1 Gbit/s
  [[nodiscard]] std::string text(double gbit_per_s) const;  // "9.41", without the unit
};
RateUnit rate_unit(double largest_gbit_per_s);

}  // namespace rueda::preflight
