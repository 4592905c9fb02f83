// What `rueda status` prints. Pure.
#pragma once

#include <string>
#include <vector>

#include "observe/view.h"

namespace rueda::observe {

// A heading for each job, and a line for each of its ranks.
std::string status_table(const std::vector<Process>& all, const std::vector<Absent>& absent);
// {"jobs": [ids], "ranks": [what each process has answered, and "waits_for"], "absent": [{"job", "launcher",
// "host", "ranks", "why"}]}
std::string status_json(const std::vector<Process>& all, const std::vector<Absent>& absent);
// "ranks 2-3 on b: why"
std::string absent_text(const Absent& absent);

}  // namespace rueda::observe
