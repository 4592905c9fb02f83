// Whose link is slow, from what the network stacks counted. Pure.
#pragma once

#include <vector>

#include "timeline/job.h"
#include "timeline/summary.h"

namespace rueda::timeline {

// Empty where nothing was counted, as on one host.
std::vector<LinkSummary> links_of(const Job& job);

}  // namespace rueda::timeline
