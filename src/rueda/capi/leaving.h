// What SIGTERM means to a process of an elastic job: it leaves at the next commit, and nobody loses a step.
#pragma once

#include "rueda/status/elastic_board.h"

namespace rueda::capi {

// The process has committed, and lives in an elastic job. It ends at SIGTERM all the same if the job is being
// ended, and at the second one. A program that handles SIGTERM itself keeps its handler. Any thread.
void leave_on_sigterm(status::ElasticBoard& board);

}  // namespace rueda::capi
