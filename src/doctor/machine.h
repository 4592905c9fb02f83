// What the machine offers, and what of it would be used. Each function looks and changes nothing.
#pragma once

#include "doctor/report.h"

namespace rueda::doctor {

Section examine_processor();
Section examine_memory();
// interface: RUEDA_INTERFACE as it is set.
Section examine_network(const std::string& interface);
// Which launcher started this process, and what could start ranks.
Section examine_launchers();

}  // namespace rueda::doctor
