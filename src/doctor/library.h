// The librueda.so that programs of this machine would load.
#pragma once

#include <string>

#include "doctor/report.h"

namespace rueda::doctor {

// Finds the library as `rueda bench` does, loads it and asks it about itself. own_path: the path
// of this program.
Section examine_library(const std::string& own_path);

}  // namespace rueda::doctor
