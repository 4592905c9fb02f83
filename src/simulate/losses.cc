#include <array>
#include <bit>

#include "simulate/runs.h"

namespace rueda::simulate {

Result<Losses> split_losses(const Case& one, int steps) {
  std::array<double, kAllCauses + 1> step_ms{};
  for (unsigned causes = 0; causes <= kAllCauses; ++causes) {
    if (const unsigned there = causes & one.causes(); there != causes) {
      step_ms[causes] = step_ms[there];  // a lesser number, so it has run
      continue;
    }
    const Result<CaseRun> run = run_case(one, causes, steps);
    if (!run.is_ok()) return run.status();
    step_ms[causes] = run.value().mean_ms();
  }
  const auto share_of = [&](unsigned cause) {
    double share = 0;
    for (unsigned others = 0; others <= kAllCauses; ++others) {
      if ((others & cause) != 0) continue;
      constexpr std::array<double, 4> kWeights = {1.0 / 4, 1.0 / 12, 1.0 / 12,
                                                  1.0 / 4};  // by how many others there are
      share +=
          kWeights[static_cast<size_t>(std::popcount(others))] * (step_ms[others | cause] - step_ms[others]);
    }
    return share;
  };
  return Losses{.links_ms = share_of(kLinks),
                .hosts_ms = share_of(kHosts),
                .jitter_ms = share_of(kJitter),
                .slowdown_ms = share_of(kSlowdown)};
}

}  // namespace rueda::simulate
