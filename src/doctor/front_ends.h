// Python, its frameworks, and whether each front end works, as reported by `python -m rueda.doctor`.
#pragma once

#include <string>

#include "doctor/report.h"

namespace rueda::doctor {

// Starts one process per installed framework. They run at the same time, and each has a minute.
Section examine_front_ends(const std::string& own_path);

// Pure. Adds the answer of one such process, or the problem that it gave none.
struct Answer {
  std::string framework;
  std::string text;  // its output
  bool is_in_time = false;
  int exit_status = 0;  // negative: minus the signal that ended it
};
void add_answer(Section& section, const Answer& answer);

}  // namespace rueda::doctor
