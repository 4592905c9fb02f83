// Where the time of a job went, from its record files.
#pragma once

#include "rueda/base/status.h"
#include "timeline/job.h"
#include "timeline/summary.h"

namespace rueda::timeline {

// Reads the files of the job once more.
Result<Summary> summarize(const Job& job, Names& names);

}  // namespace rueda::timeline
