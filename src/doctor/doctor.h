#pragma once

#include <string>

#include "doctor/report.h"

namespace rueda::doctor {

// Inspects everything. own_path: the path of this program. looks_at_python: also starts Python and imports
// frameworks, which takes seconds.
Report examine(const std::string& own_path, bool looks_at_python, const Progress& tell);

}  // namespace rueda::doctor
