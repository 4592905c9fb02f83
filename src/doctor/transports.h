// Whether each transport carries bytes here: two ranks exchange some, and compare what arrives.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "doctor/report.h"

namespace rueda::doctor {

// Starts `rueda bench` for each transport, one after the other, each with a deadline. transports: the value
// of RUEDA_TRANSPORTS.
Section examine_transports(const std::string& own_path, std::string_view transports);

// Pure. What one of them wrote: its output, and the JSON, which is empty if it did not get so far.
struct Trial {
  std::string transport, output, json;
  bool is_in_time = false;
};
void add_trial(Section& section, const Trial& trial);

}  // namespace rueda::doctor
