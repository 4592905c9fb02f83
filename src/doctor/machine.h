// What the machine offers, and which of it rueda would use. The functions change nothing.
#pragma once

#include <string>

#include "doctor/report.h"

namespace rueda::doctor {

Section examine_processor();
Section examine_memory();
// interface: the value of RUEDA_INTERFACE.
Section examine_network(const std::string& interface);
// Which launcher started this process, and what could start ranks.
Section examine_launchers();

// As large as the files that two ranks share by default (RUEDA_SHM_RING_BYTES): a limit may admit smaller
// ones.
inline constexpr unsigned long long kSharedBytes = 4ULL << 20;
// The memory of the machine, or the limit of this process's control group if that is less.
unsigned long long usable_memory_bytes();
// What is free in /dev/shm; -1: it is not mounted.
long long free_shm_bytes();
// The cores that this process may use; 0 = unknown.
int usable_cores();

}  // namespace rueda::doctor
