// What `rueda status` prints. Pure.
#pragma once

#include <string>
#include <vector>

#include "observe/view.h"

namespace rueda::observe {

// A heading for each job, and a line for each of its ranks.
std::string status_table(const std::vector<Process>& all);
// {"jobs": [ids], "ranks": [what each process has answered, and "waits_for"]}
std::string status_json(const std::vector<Process>& all);
// Ranks of the job of this size that are not among these: they are on other hosts, or do not answer.
std::vector<Rank> absent_ranks(const std::vector<Process>& ranks_of_job);

}  // namespace rueda::observe
