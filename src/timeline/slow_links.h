// Whose link is slow, from what the network stacks counted. Pure.
#pragma once

#include "timeline/job.h"
#include "timeline/summary.h"

namespace rueda::timeline {

// Sets links, slow_pairs and slow_times. They stay empty where nothing was counted, as on one host.
void judge_links(const Job& job, Summary& summary);

}  // namespace rueda::timeline
