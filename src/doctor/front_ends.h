// Python, its frameworks, and whether each front end works, as reported by `python -m rueda.doctor`.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "doctor/python.h"
#include "doctor/report.h"
#include "rueda/base/clock.h"

namespace rueda::doctor {

// One process per installed framework. They run at the same time, from the constructor on, and have a minute.
class FrontEnds {
 public:
  explicit FrontEnds(const std::string& own_path);
  // Waits for them; once.
  Section finish(const Progress& tell);

 private:
  Deadline deadline_;
  Section section_{.title = "python", .facts = {}, .problems = {}};
  std::vector<std::pair<std::string, PythonProgram>> running_;
};

// Pure. Adds the answer of one such process, or the problem that it gave none.
struct Answer {
  std::string framework;
  std::string text;  // its output
  bool is_in_time = false;
  int exit_status = 0;  // negative: minus the signal that ended it
};
void add_answer(Section& section, const Answer& answer);

}  // namespace rueda::doctor
