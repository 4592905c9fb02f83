// Everything that one preflight has found, and its three forms: a page, JSON and a picture. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "preflight/findings.h"
#include "preflight/measure.h"
#include "preflight/ring_order.h"

namespace rueda::preflight {

struct Outcome {
  std::vector<std::string> asked;  // the hosts of the job, whether they answered or not
  int ranks = 0;
  double least_gbit_per_s = 0;           // that --min-rate demands
  Measured measured;                     // of the hosts that answered
  std::vector<launch::HostSlots> slots;  // of the hosts that were measured; empty = nobody has said
  LinkVerdict verdict;
  std::optional<RingOrder> ring;
  Findings findings;
};

// Judges what was measured. started_with: findings from before the measurement, such as missing hosts.
Outcome judge(Measured measured, int ranks, double least_gbit_per_s, Findings started_with,
              std::vector<launch::HostSlots> slots = {});

std::string page(const Outcome& outcome);
std::string json(const Outcome& outcome);      // docs/preflight.md describes it
std::string heat_map(const Outcome& outcome);  // SVG

// Between the first rank and the launcher that has started it, as one line.
std::string encode(const Measured& measured);
Result<Measured> decode_measured(std::string_view text);

}  // namespace rueda::preflight
