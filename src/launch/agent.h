// The agent. The launcher starts one per host, directly or through ssh as `rueda agent`. The agent starts the
// ranks of its host, reports their output and how they end, and makes sure that none of their processes
// outlives the job.
//
// An agent consists of two processes, a guardian and a worker (guardian.h). The worker learns that the
// launcher, ssh or the connection is gone by end of file on stdin or by missing pings. When the worker dies,
// its ranks are killed by their own parent-death signal.
#pragma once

#include <optional>
#include <string>

#include "launch/joining.h"

namespace rueda::launch {

// Runs the agent and returns its exit status. release: the version, which the launcher compares with its own.
// stdin and stdout lead to the launcher.
int agent_main(const std::string& release, const std::optional<Joining>& joining = {});

}  // namespace rueda::launch
