// What srun tells a task. Pure. The daemons of mpirun and Hydra see the variables of a step, too, so a caller
// must look for those launchers first.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rueda/store/environment.h"

namespace rueda::store {

struct SlurmStep {
  Rank rank = -1;
  Rank size = -1;
  Rank local_rank = -1;  // -1 with local_size when srun did not say both
  Rank local_size = -1;
  std::string id;          // "<job>.<step>", as in PMI_JOBID
  std::string restarts;    // how often the job was requeued; its steps then have the same ids again
  std::string first_host;  // where rank 0 runs; empty if the node list is absent
  std::string srun_host;   // where srun runs; under sbatch usually the same host
};

// Empty if not inside a step. Fails with kInvalidArgument if the variables contradict each other.
Result<std::optional<SlurmStep>> read_slurm_step(const Environment& env);

// "n[1-2,07],m3" → n1 n2 n07 m3. At most kMaxRanks hosts.
Result<std::vector<std::string>> expand_node_list(std::string_view text);
// "3,1(x2)" → 3 1 1.
Result<std::vector<Rank>> expand_tasks_per_node(std::string_view text);

}  // namespace rueda::store
