#include "preflight/exchange.h"

#include <algorithm>

#include "bench/pattern.h"
#include "rueda/base/clock.h"

namespace rueda::preflight {

double gbit_per_s(Timed last, Timed before) {
  const auto rate = [](int64_t bytes, int64_t ns) {
    return ns <= 0 ? 0.0 : 8.0 * static_cast<double>(bytes) / static_cast<double>(ns);
  };
  const double whole = rate(last.bytes, last.ns);
  // If the shorter exchange met a disturbance, the difference says too much.
  constexpr double kMostGain = 1.25;
  return std::clamp(rate(last.bytes - before.bytes, last.ns - before.ns), whole, kMostGain * whole);
}

Exchange::Exchange(bench::Rank& rank, bench::ProcessSet set, bench::Buffer in, bench::Buffer out)
    : rank_(&rank),
      set_(set),
      in_(std::move(in)),
      out_(std::move(out)),
      splits_(static_cast<size_t>(set.size)) {
  bench::fill(in_.values(), bench::pattern_of(rank.rank(), 0));
}

Result<Exchange> Exchange::make(bench::Rank& rank, bench::ProcessSet set) {
  constexpr int64_t kCount = kLastBytes / static_cast<int64_t>(sizeof(float));
  Result<bench::Buffer> in = bench::Buffer::make(rank.library(), "private", kCount);
  if (!in.is_ok()) return in.status();
  Result<bench::Buffer> out = bench::Buffer::make(rank.library(), "private", kCount);
  if (!out.is_ok()) return out.status();
  return Exchange(rank, set, std::move(in).value(), std::move(out).value());
}

Result<int64_t> Exchange::run(int partner, int64_t bytes) {
  const int64_t count = partner < 0 ? 0 : bytes / static_cast<int64_t>(sizeof(float));
  std::ranges::fill(splits_, 0);
  if (partner >= 0) splits_[static_cast<size_t>(partner)] = static_cast<int32_t>(count);
  // So that bytes of an earlier exchange cannot pass for those of this one.
  std::ranges::fill(out_.values().first(static_cast<size_t>(count)), 0.0F);
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

bool Exchange::is_right(int partner_world_rank, int64_t bytes) const {
  const auto count = static_cast<size_t>(bytes) / sizeof(float);
  return bench::holds(out_.values().first(count), bench::pattern_of(partner_world_rank, 0));
}

}  // namespace rueda::preflight
