// One exchange of bytes between pairs of ranks, by an alltoall in which every rank sends to one other rank
// only. Without a partner a rank takes part and sends nothing.
#pragma once

#include <string>
#include <vector>

#include "bench/rank.h"

namespace rueda::preflight {

// Sizes of exchanges: each is 8 times the last, until one takes kLongEnough. The first is a round trip's
// worth of any network; the last keeps 100 Gbit/s busy for 5 ms, and needs 128 MiB of memory.
inline constexpr int64_t kFirstBytes = int64_t{128} << 10, kLastBytes = int64_t{64} << 20;
inline constexpr int64_t kGrowth = 8;
inline constexpr int64_t kLongEnoughNs = 15'000'000;
// The first exchange alone says little: a switch may let all its bytes pass at once. It is taken for the rate
// only where the next one would take many seconds.
inline constexpr int64_t kSlowAloneNs = 1'000'000'000;

// The rate in Gbit/s of two exchanges of growing size. The difference leaves out what every call costs:
// negotiation, waking up, the burst that a switch lets pass. Pure.
struct Timed {
  int64_t bytes = 0, ns = 0;
};
double gbit_per_s(Timed last, Timed before);

class PairExchange {
 public:
  static Result<PairExchange> make(bench::Rank& rank, bench::ProcessSet set);

  // Collective in the set. partner: an index in the set, -1 = none. Returns how long it took on this rank
  // from a barrier on, in nanoseconds.
  Result<int64_t> run(int partner, int64_t bytes) { return run(partner, bytes, bytes); }
  // The same, where this rank sends so many bytes and receives so many others.
  Result<int64_t> run(int partner, int64_t out_bytes, int64_t in_bytes);
  // Whether the last exchange brought the bytes of this world rank.
  [[nodiscard]] bool is_right(int partner_world_rank, int64_t bytes) const;

 private:
  PairExchange(bench::Rank& rank, bench::ProcessSet set, bench::Buffer in, bench::Buffer out);
  bench::Rank* rank_;
  bench::ProcessSet set_;
  bench::Buffer in_, out_;
  std::vector<int32_t> splits_;
};

}  // namespace rueda::preflight
