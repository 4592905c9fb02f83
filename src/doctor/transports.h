// Whether each transport carries bytes here: two ranks exchange some, and compare what arrives.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "doctor/report.h"

namespace rueda::doctor {

// Starts `rueda bench` for each transport, one after the other, each with a deadline. transports: the value
// of RUEDA_TRANSPORTS. memory_fault: why ranks of this host cannot share memory; "" = they can.
Section examine_transports(const std::string& own_path, std::string_view transports,
                           const std::string& memory_fault);

// What one of them wrote: its output, and the JSON, which is empty if it did not get so far.
struct Trial {
  std::string transport, output, json;
  bool is_in_time = false;
};
// Pure. text: all that one of them wrote. The JSON comes last.
Trial trial_of(std::string transport, const std::string& text, bool is_in_time);
// Pure.
void add_trial(Section& section, const Trial& trial);
// Pure. Whether a value of RUEDA_TRANSPORTS has this transport.
bool names(std::string_view transports, std::string_view transport);
// Pure. Those of RUEDA_TRANSPORTS that ranks of this host use: without shm, if there is another and memory
// cannot be shared.
std::string usable_transports(std::string_view transports, const std::string& memory_fault);

}  // namespace rueda::doctor
