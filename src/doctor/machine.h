// What the machine offers, and which of it rueda would use. The functions change nothing.
#pragma once

#include <string>

#include "doctor/report.h"

namespace rueda::doctor {

Section examine_processor();
// memory_fault: why ranks of this host cannot share memory; "" = they can.
Section examine_memory(const std::string& memory_fault);
// interface: the value of RUEDA_INTERFACE.
Section examine_network(const std::string& interface);
// Which launcher started this process, and what could start ranks.
Section examine_launchers();

// The memory of the machine, or the limit of this process's control group if that is less.
unsigned long long usable_memory_bytes();
// "" = ranks of this host can share memory; else why they cannot, and what to do.
std::string shared_memory_fault();
// What is free in /dev/shm; -1: it is not mounted.
long long free_shm_bytes();
// The cores that this process may use; 0 = unknown.
int usable_cores();

}  // namespace rueda::doctor
