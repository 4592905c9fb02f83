// Launchers inside launchers, as `mpirun -np 2 torchrun …`: which variables belong to the outer one. Pure.
#pragma once

#include <string>

#include "rueda/store/world.h"

namespace rueda::store {

// `rueda run` gives its ranks no place of another launcher's. So a launcher that shows beside it was started
// by one of its ranks, and is the inner one. Variables that were set by hand count as innermost instead.
bool is_rank_of_rueda_run(const GetEnv& get_env);

// The environment without what this launcher says about a rank: "rueda", "torchrun", "openmpi", … as in
// World::launcher.
GetEnv without_launcher(const GetEnv& get_env, const std::string& launcher);

// Whether these are ranks that a launcher has started, and not variables in the environment of a host, a pod
// or a batch job. A library of MPI may leave the variables of a world of one rank behind.
bool has_launched_ranks(const World& world);

// "launchers are nested: …", for the user.
std::string describe_nesting(const World& inner, const World& outer);

}  // namespace rueda::store
