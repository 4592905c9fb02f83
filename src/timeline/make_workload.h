// A workload, as src/workload describes it, from the records of a short run.
#pragma once

#include <string>
#include <vector>

#include "rueda/base/status.h"
#include "timeline/job.h"
#include "workload/models.h"

namespace rueda::timeline {

struct MadeWorkload {
  workload::Model model;
  std::vector<std::string> remarks;  // each a sentence, also what was left out
};

// Reads the files of the job once more. Fails, and says how to record them, where steps or tensors are not in
// the records.
Result<MadeWorkload> make_workload(const Job& job, const std::string& name, Names& names);

}  // namespace rueda::timeline
