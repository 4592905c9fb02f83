#include "preflight/exchange.h"

#include <algorithm>

#include "bench/pattern.h"
#include "rueda/base/clock.h"

namespace rueda::preflight {

double gbit_per_s(Timed last, Timed before) {
  const auto rate = [](double bytes, double ns) { return ns <= 0 ? 0.0 : 8 * bytes / ns; };
  const auto bytes = static_cast<double>(last.bytes), ns = static_cast<double>(last.ns);
  const double whole = rate(bytes, ns);
  const auto more_bytes = static_cast<double>(last.bytes - before.bytes);
  const double difference = rate(more_bytes, static_cast<double>(last.ns - before.ns));
  // If either exchange was disturbed, the difference is wrong in one direction or the other. Bounds: a call
  // costs at most kMostPerCallNs, and what may pass at once is at most kMostBurst of the bytes.
  constexpr double kMostPerCallNs = 1e6, kMostBurst = 0.2;
  const double fastest = rate(more_bytes, ns * more_bytes / bytes - kMostPerCallNs);
  const double most = fastest > 0 ? fastest : whole;
  if (difference <= 0) return whole;
  return std::clamp(difference, (1 - kMostBurst) * whole, std::max(whole, most));
}

PairExchange::PairExchange(bench::Rank& rank, bench::ProcessSet set, bench::Buffer in, bench::Buffer out)
    : rank_(&rank),
      set_(set),
      in_(std::move(in)),
      out_(std::move(out)),
      splits_(static_cast<size_t>(set.size)) {
  bench::fill(in_.values(), bench::pattern_of(rank.rank(), 0));
}

Result<PairExchange> PairExchange::make(bench::Rank& rank, bench::ProcessSet set) {
  constexpr int64_t kCount = kLastBytes / static_cast<int64_t>(sizeof(float));
  Result<bench::Buffer> in = bench::Buffer::make(rank.library(), "private", kCount);
  if (!in.is_ok()) return in.status();
  Result<bench::Buffer> out = bench::Buffer::make(rank.library(), "private", kCount);
  if (!out.is_ok()) return out.status();
  return PairExchange(rank, set, std::move(in).value(), std::move(out).value());
}

Result<int64_t> PairExchange::run(int partner, int64_t out_bytes, int64_t in_bytes) {
  const auto count_of = [&](int64_t bytes) {
    return partner < 0 ? 0 : bytes / static_cast<int64_t>(sizeof(float));
  };
  const int64_t count = count_of(out_bytes);
  std::ranges::fill(splits_, 0);
  if (partner >= 0) splits_[static_cast<size_t>(partner)] = static_cast<int32_t>(count);
  // So that bytes of an earlier exchange cannot pass for those of this one.
  std::ranges::fill(out_.values().first(static_cast<size_t>(count_of(in_bytes))), 0.0F);
  if (Status met = rank_->barrier("preflight.barrier", set_.id); !met.is_ok()) return met;
  const Nanos start = monotonic_now();
  const Status done = rank_->run({.what = RUEDA_ALLTOALL,
                                  .name = "preflight.exchange",
                                  .count = count,
                                  .input = in_.values().data(),
                                  .output = out_.values().data(),
                                  .splits = splits_,
                                  .process_set = set_.id});
  if (!done.is_ok()) return done;
  return monotonic_now() - start;
}

bool PairExchange::is_right(int partner_world_rank, int64_t bytes) const {
  const auto count = static_cast<size_t>(bytes) / sizeof(float);
  return bench::holds(out_.values().first(count), bench::pattern_of(partner_world_rank, 0));
}

}  // namespace rueda::preflight
