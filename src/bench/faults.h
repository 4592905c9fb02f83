// What is wrong with the hosts of `rueda bench replay` on purpose: a slow port, a slow pair, a late rank.
// They show what one of them costs a job, and whether what looks for such faults finds them. Values; pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rueda/base/status.h"

namespace rueda::bench {

// The port of a host has this rate, in both directions, instead of the one of all links.
struct SlowHost {
  int host = 0;
  int64_t rate = 0;  // bits per second
};
// Between these two hosts no more than this passes, in each direction.
struct SlowPair {
  int first = 0, second = 1;
  int64_t rate = 0;
};
// A rank computes longer than the others in every step: 0.2 = by a fifth.
struct LateRank {
  int rank = 0;
  double share = 0;
};

struct Faults {
  std::vector<SlowHost> hosts = {};
  std::vector<SlowPair> pairs = {};
  std::vector<LateRank> late = {};

  [[nodiscard]] int64_t port_rate(int host, int64_t others) const;  // others: of hosts without a fault
  [[nodiscard]] double slowness(int rank) const;  // its computing takes so many times as long
  // Whether they name only hosts and ranks that there are, each once, and limit something.
  [[nodiscard]] Status check(int ranks, int per_host, int64_t rate) const;
  [[nodiscard]] std::vector<std::string> words() const;  // as options: "--late", "1:20%"
  [[nodiscard]] std::string text() const;                // for people: "rank 1 late by 20 %"
};
// From Faults::words(). Late ranks may have shares, "1:0.2", as reports of earlier versions do.
Result<Faults> faults_of(const std::vector<std::string>& words);

// "2:250mbit,3:1gbit"; "0-3:100mbit"; "1:20%,2:50%". At most one for each host, pair and rank.
Result<std::vector<SlowHost>> parse_slow_hosts(std::string_view text);
Result<std::vector<SlowPair>> parse_slow_pairs(std::string_view text);
Result<std::vector<LateRank>> parse_late_ranks(std::string_view text);

}  // namespace rueda::bench
