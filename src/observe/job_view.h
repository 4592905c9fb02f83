// What a launcher has told about the other hosts of its job, as values. Pure.
#pragma once

#include <vector>

#include "observe/view.h"
#include "rueda/status/job_answer.h"

namespace rueda::observe {

struct JobView {
  int launcher = 0;
  std::vector<Process> processes;
  std::vector<Absent> absent;  // ranks of one host with one reason are together
};
JobView view_of(const status::JobAnswer& answer);

// Whether both are the same rank of the same job.
bool is_same(const Process& one, const Process& other);

}  // namespace rueda::observe
