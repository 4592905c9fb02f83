// Python, the frameworks in it, and whether each front end works: what `python -m rueda.doctor` says.
#pragma once

#include <string>

#include "doctor/report.h"

namespace rueda::doctor {

// Starts one process for each framework that is installed, all at once, each with a minute.
Section examine_front_ends(const std::string& own_path);

// Pure: adds what one such process said, or that it said nothing.
struct Answer {
  std::string framework;
  std::string text;  // its output
  bool is_in_time = false;
  int exit_status = 0;  // minus a signal
};
void add_answer(Section& section, const Answer& answer);

}  // namespace rueda::doctor
