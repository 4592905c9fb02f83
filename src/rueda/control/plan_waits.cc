#include "rueda/control/plan_waits.h"

#include <algorithm>
#include <map>
#include <utility>

namespace rueda::control {
namespace {

StalledTensor no_wait() {
  return {.name = {}, .operation = "ALLREDUCE", .process_set = 0, .age = 0, .missing = {}, .waiting = {}};
}

// All ranks take part in all buckets, so the ranks that have started the fewest are missing.
std::vector<StalledTensor> in_world(const std::vector<const Facts*>& facts) {
  int64_t least = facts.front()->plan_started;
  for (const Facts* one : facts) least = std::min(least, one->plan_started);
  StalledTensor wait = no_wait();
  for (size_t rank = 0; rank < facts.size(); ++rank) {
    const Facts& one = *facts[rank];
    if (one.plan_started == least) {
      wait.missing.push_back(static_cast<Rank>(rank));
      if (wait.name.empty()) wait.name = one.plan_lacks;
    } else if (one.plan_stuck_for > 0) {
      wait.waiting.push_back(static_cast<Rank>(rank));
      wait.age = std::max(wait.age, one.plan_stuck_for);
    }
  }
  if (wait.waiting.empty()) return {};
  return {std::move(wait)};
}

// Each bucket under way waits for the members that have not started it because they lack a tensor. One that
// lacks none waits itself, for the end of its earlier buckets.
std::vector<StalledTensor> in_sets(const std::vector<const Facts*>& facts, const PlanLedger& plan) {
  std::map<int64_t, StalledTensor> waits;  // by the number of the bucket
  for (size_t rank = 0; rank < facts.size(); ++rank) {
    const Facts& one = *facts[rank];
    if (one.plan_stuck_for <= 0 || one.plan_open < 0) continue;
    StalledTensor& wait = waits.try_emplace(one.plan_open, no_wait()).first->second;
    wait.waiting.push_back(static_cast<Rank>(rank));
    wait.age = std::max(wait.age, one.plan_stuck_for);
  }
  std::vector<StalledTensor> found;
  for (auto& [number, wait] : waits) {
    for (const Rank member : plan.members_of(number)) {
      const Facts& one = *facts[static_cast<size_t>(member)];
      if (one.plan_started > number || one.plan_lacks.empty()) continue;
      wait.missing.push_back(member);
      if (!wait.name.empty()) continue;
      wait.name = one.plan_lacks;
      wait.process_set = plan.set_of(one.plan_started);
    }
    if (!wait.missing.empty()) found.push_back(std::move(wait));
  }
  return found;
}

}  // namespace

std::vector<StalledTensor> plan_waits(const std::vector<const Facts*>& facts, const PlanLedger* plan) {
  const int64_t number = facts.front()->plan_number;
  if (number == 0) return {};
  if (std::ranges::any_of(facts, [number](const Facts* one) { return one->plan_number != number; }))
    return {};
  if (plan == nullptr || !plan->has_sets()) return in_world(facts);
  if (!plan->is_active() || plan->plan_number() != number) return {};
  return in_sets(facts, *plan);
}

}  // namespace rueda::control
