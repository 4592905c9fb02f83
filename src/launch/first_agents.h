// The hosts of a job for which no hosts were named: those of the first agents that join.
#pragma once

#include "launch/agent_door.h"
#include "launch/agents.h"
#include "launch/job_options.h"
#include "launch/rank_output.h"

namespace rueda::launch {

// Waits until they have as many slots as the job has ranks. Then the hosts are in the options, and the agents
// are among those of the job. output: where the user reads who is missing.
Status await_first_agents(AgentDoor& door, RunOptions& options, Agents& agents, RankOutput& output);

}  // namespace rueda::launch
