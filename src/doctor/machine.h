// What the machine offers, and which of it rueda would use. The functions change nothing.
#pragma once

#include "doctor/report.h"

namespace rueda::doctor {

Section examine_processor();
Section examine_memory();
// interface: the value of RUEDA_INTERFACE.
Section examine_network(const std::string& interface);
// Which launcher started this process, and what could start ranks.
Section examine_launchers();

}  // namespace rueda::doctor
