// What waits in a learned plan, from what the ranks tell about themselves: nothing of a plan is negotiated,
// so the coordinator does not see it otherwise. Pure.
#pragma once

#include <vector>

#include "rueda/control/facts.h"
#include "rueda/control/plans.h"
#include "rueda/control/stalls.h"

namespace rueda::control {

// facts: [rank]. plan: of the coordinator; null if that is not known, as where only the world has buckets.
// Empty while the plan begins or ends on some rank.
std::vector<StalledTensor> plan_waits(const std::vector<const Facts*>& facts, const PlanLedger* plan);

}  // namespace rueda::control
