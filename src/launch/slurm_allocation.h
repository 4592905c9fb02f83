// The Slurm allocation in which `rueda run` was started. Pure.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "launch/hosts.h"
#include "rueda/base/status.h"
#include "rueda/store/world.h"

namespace rueda::launch {

struct SlurmNode {
  std::string name;
  int tasks = 1;       // for which the user asked, or as many as the node's CPUs
  int cpus = 1;        // of this node that belong to the job
  int het_group = -1;  // the component of a heterogeneous job that has this node; -1 in other jobs
  bool operator==(const SlurmNode&) const = default;
};

// The nodes of the allocation in salloc or sbatch; those of all components of a heterogeneous job. Empty
// elsewhere, and in a task of a step that has several: there, each task starts a job of its own on its host.
// Contradictory variables are kInvalidArgument.
Result<std::vector<SlurmNode>> read_slurm_allocation(const store::GetEnv& get_env);

// The slots of the nodes for a job of `size` ranks (0: as many as there are tasks): the tasks, or all CPUs if
// the ranks are more than the tasks.
std::vector<HostSlots> slots_of(std::span<const SlurmNode> nodes, int size);

}  // namespace rueda::launch
